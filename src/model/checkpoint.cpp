#include "model/checkpoint.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "model/strict_json.h"
#include "model/weight_files.h"

namespace signet::model {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxConfigBytes = 16 << 20;

/// The text of a file that may be absent (then empty).
Result<std::string> ReadOptional(const fs::path& path) {
  if (!IsThere(path)) return std::string();
  SIGNET_ASSIGN_OR_RETURN(const OpenedFile file, OpenedFile::Open(path));
  return file.ReadAll(kMaxConfigBytes);
}

Result<std::string> ReadRequired(const fs::path& path) {
  SIGNET_ASSIGN_OR_RETURN(const OpenedFile file, OpenedFile::Open(path));
  return file.ReadAll(kMaxConfigBytes);
}

/// The value, or T() with the error noted.
template <typename T>
T Take(Result<T> result, RejectionList* rejections) {
  if (result.has_value()) return *std::move(result);
  rejections->Absorb(std::move(result).error());
  return T();
}

bool HasTemplateKey(const std::string& tokenizer_config, const fs::path& path,
                    RejectionList* rejections) {
  if (tokenizer_config.empty()) return false;
  const auto parsed = ParseStrictJson(tokenizer_config);
  if (!parsed.has_value()) {
    rejections->Add(RejectionCode::kJsonInvalid, path.string(),
                    parsed.error().message,
                    parsed.error().duplicate_key.value_or(""));
    return false;
  }
  return parsed->is_object() && parsed->contains("chat_template") &&
         !(*parsed)["chat_template"].is_null();
}

}  // namespace

Result<Checkpoint> Checkpoint::Open(const fs::path& folder) {
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored)) {
    return Reject(RejectionCode::kSourceNotFound, folder.string(),
                  "there is no such folder");
  }
  Checkpoint checkpoint;
  RejectionList rejections;
  checkpoint.folder_ = folder.string();
  checkpoint.config_json_ =
      Take(ReadRequired(folder / "config.json"), &rejections);
  checkpoint.generation_config_json_ =
      Take(ReadOptional(folder / "generation_config.json"), &rejections);
  const fs::path tokenizer_config_path = folder / "tokenizer_config.json";
  checkpoint.tokenizer_config_json_ =
      Take(ReadOptional(tokenizer_config_path), &rejections);
  checkpoint.has_chat_template_ =
      HasTemplateKey(checkpoint.tokenizer_config_json_, tokenizer_config_path,
                     &rejections) ||
      IsThere(folder / "chat_template.jinja");
  if (const fs::path path = folder / "tokenizer.json"; IsThere(path)) {
    Result<OpenedFile> file = OpenedFile::Open(path);
    if (file.has_value()) {
      checkpoint.tokenizer_file_ = *std::move(file);
    } else {
      rejections.Absorb(std::move(file).error());
    }
  }
  WeightFiles weights = Take(OpenWeightFiles(folder), &rejections);
  if (!rejections.empty()) return rejections.Take();

  Digester digester;
  digester.Update(Digest::Of(checkpoint.config_json_).Hex());
  for (const Digest& digest : weights.header_digests) {
    digester.Update(digest.Hex());
  }
  checkpoint.digest_ = digester.Finish();
  checkpoint.files_ = std::move(weights.files);
  checkpoint.tensors_ = std::move(weights.tensors);
  return checkpoint;
}

const HeaderTensor* Checkpoint::Find(std::string_view name) const {
  const auto place =
      std::lower_bound(tensors_.begin(), tensors_.end(), name,
                       [](const HeaderTensor& tensor, std::string_view wanted) {
                         return tensor.name < wanted;
                       });
  if (place == tensors_.end() || place->name != name) return nullptr;
  return &*place;
}

Result<void> Checkpoint::CheckUnchanged() const {
  for (const OpenedFile& file : files_) {
    SIGNET_RETURN_IF_ERROR(file.CheckUnchanged());
  }
  return {};
}

}  // namespace signet::model
