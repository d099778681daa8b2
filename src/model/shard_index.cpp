#include "model/shard_index.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "model/rejection_cap.h"
#include "model/strict_json.h"
#include "model/tensor_name.h"

namespace signet::model {
namespace {

using nlohmann::json;

constexpr uint64_t kMaxIndexBytes = 100'000'000;
constexpr size_t kMaxFileNameBytes = 255;  // of Linux

bool IsPlainFileName(const std::string& name) {
  return !name.empty() && name.size() <= kMaxFileNameBytes && name != "." &&
         name != ".." && std::all_of(name.begin(), name.end(), [](char c) {
           return static_cast<unsigned char>(c) >= 0x20 && c != 0x7f &&
                  c != '/' && c != '\\';
         });
}

}  // namespace

Result<ShardIndex> ReadShardIndex(const OpenedFile& file) {
  SIGNET_ASSIGN_OR_RETURN(const std::string text, file.ReadAll(kMaxIndexBytes));
  const tl::expected<JsonTree, JsonFault> parsed = ParseStrictJson(text);
  if (!parsed.has_value()) {
    return Reject(RejectionCode::kJsonInvalid, file.path(),
                  parsed.error().message,
                  parsed.error().duplicate_key.value_or(""));
  }
  if (!parsed->is_object() || !parsed->contains("weight_map") ||
      !(*parsed)["weight_map"].is_object()) {
    return Reject(RejectionCode::kIndexInconsistent, file.path(),
                  "the index has no weight_map");
  }
  CappedRejections capped;
  ShardIndex index;
  std::set<std::string> shards;
  for (const auto& [name, shard] : (*parsed)["weight_map"].items()) {
    if (!IsTensorName(name)) {
      capped.Add(RejectionCode::kIndexInconsistent,
                 fmt::format("{}: {}", file.path(), Shown(name)),
                 "a tensor name is empty, too long or has control characters");
      continue;
    }
    const auto* shard_name = shard.get_ptr<const json::string_t*>();
    if (shard_name == nullptr || !IsPlainFileName(*shard_name)) {
      capped.Add(RejectionCode::kIndexInconsistent,
                 fmt::format("{}: {}", file.path(), Shown(name)),
                 "a shard is not a plain file name", Shown(shard));
      continue;
    }
    shards.insert(*shard_name);
    index.shard_of.emplace(name, *shard_name);
  }
  if (!capped.empty()) {
    RejectionList rejections;
    capped.FlushInto(file.path(), &rejections);
    return rejections.Take();
  }
  index.shards.assign(shards.begin(), shards.end());
  return index;
}

}  // namespace signet::model
