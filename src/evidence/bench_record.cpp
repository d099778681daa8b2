#include "evidence/bench_record.h"

#include <cstdint>
#include <string>

#include "evidence/json_file.h"
#include "model/checkpoint.h"
#include "model/strict_json.h"

namespace signet::evidence {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxBenchBytes = uint64_t{64} << 20;

bool IsBench(const fs::path& file) {
  const Result<model::OpenedFile> opened = model::OpenedFile::Open(file);
  if (!opened) return false;
  const Result<std::string> text = opened->ReadAll(kMaxBenchBytes);
  if (!text) return false;
  const auto object = model::ParseStrictJson(*text);
  return object && object->is_object() && object->contains("signet_bench") &&
         object->at("signet_bench") == 1;
}

}  // namespace

Result<void> CheckBenchPlace(const fs::path& file) {
  SIGNET_ASSIGN_OR_RETURN(const bool taken, IsTaken(file, "bench"));
  if (!taken || IsBench(file)) return {};
  return Reject(RejectionCode::kJsonInvalid, file.string(),
                "only a bench is written over, and this file is none", "",
                "a new file, or a bench");
}

Result<void> WriteBench(const nlohmann::ordered_json& bench,
                        const fs::path& file) {
  SIGNET_RETURN_IF_ERROR(CheckBenchPlace(file));
  return WriteJsonFile(bench, file, "bench");
}

}  // namespace signet::evidence
