#include "model/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "model/rejection_cap.h"
#include "model/safetensors_header.h"
#include "model/shard_index.h"
#include "model/strict_json.h"

namespace signet::model {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxConfigBytes = 16 << 20;
constexpr std::string_view kSingleName = "model.safetensors";
constexpr std::string_view kIndexName = "model.safetensors.index.json";

/// Also true for a broken link: the name is there, opening it will say why not.
bool IsThere(const fs::path& path) {
  std::error_code ignored;
  return fs::symlink_status(path, ignored).type() != fs::file_type::not_found;
}

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

/// The weight files of a folder, opened, with every tensor of their headers.
class WeightReader {
 public:
  explicit WeightReader(fs::path folder) : folder_(std::move(folder)) {}

  Result<void> Read() {
    const bool has_index = IsThere(folder_ / kIndexName);
    const bool has_single = IsThere(folder_ / kSingleName);
    if (has_index) {
      SIGNET_RETURN_IF_ERROR(ReadSharded(has_single));
    } else if (has_single) {
      ReadFile(std::string(kSingleName));
    } else {
      return Reject(RejectionCode::kFileMissing, folder_.string(),
                    "the folder has no weights", {},
                    fmt::format("{} or {}", kSingleName, kIndexName));
    }
    std::sort(tensors.begin(), tensors.end(),
              [](const HeaderTensor& a, const HeaderTensor& b) {
                return a.name < b.name;
              });
    CheckNoTensorTwice();
    capped_.FlushInto(folder_.string(), &rejections_);
    if (!rejections_.empty()) return rejections_.Take();
    return {};
  }

  IdVector<FileId, OpenedFile> files;
  std::vector<Digest> header_digests;
  std::vector<HeaderTensor> tensors;

 private:
  Result<void> ReadSharded(bool has_single) {
    const fs::path index_path = folder_ / kIndexName;
    SIGNET_ASSIGN_OR_RETURN(const OpenedFile index_file,
                            OpenedFile::Open(index_path));
    SIGNET_ASSIGN_OR_RETURN(const ShardIndex index, ReadShardIndex(index_file));
    if (index.shards.empty()) {
      return Reject(RejectionCode::kIndexInconsistent, index_path.string(),
                    "the index names no tensor");
    }
    const bool names_single =
        std::find(index.shards.begin(), index.shards.end(), kSingleName) !=
        index.shards.end();
    if (has_single && !names_single) {
      return Reject(RejectionCode::kSourceAmbiguous, folder_.string(),
                    "the folder has a single weight file and an index that "
                    "does not name it",
                    fmt::format("{} and {}", kSingleName, kIndexName));
    }
    for (const std::string& shard : index.shards) {
      const size_t first = tensors.size();
      if (!ReadFile(shard)) continue;
      CheckShard(index, shard, first);
    }
    return {};
  }

  /// False when the file was refused.
  bool ReadFile(const std::string& name) {
    Result<OpenedFile> file = OpenedFile::Open(folder_ / name);
    if (!file.has_value()) {
      rejections_.Absorb(std::move(file).error());
      return false;
    }
    const FileId id(static_cast<int32_t>(files.size()));
    Result<SafetensorsHeader> header = ReadSafetensorsHeader(*file, id);
    if (!header.has_value()) {
      rejections_.Absorb(std::move(header).error());
      return false;
    }
    files.Push(*std::move(file));
    header_digests.push_back(header->digest);
    std::move(header->tensors.begin(), header->tensors.end(),
              std::back_inserter(tensors));
    return true;
  }

  /// The tensors from `first` on are those of `shard`: they and the index must
  /// say the same.
  void CheckShard(const ShardIndex& index, const std::string& shard,
                  size_t first) {
    std::vector<std::string_view> held;
    for (size_t i = first; i < tensors.size(); ++i) {
      held.push_back(tensors[i].name);
      const auto place = index.shard_of.find(tensors[i].name);
      if (place == index.shard_of.end()) {
        capped_.Add(RejectionCode::kIndexInconsistent,
                    Where(shard, tensors[i].name),
                    "the shard holds a tensor that the index does not name");
      } else if (place->second != shard) {
        capped_.Add(RejectionCode::kIndexInconsistent,
                    Where(shard, tensors[i].name),
                    "the index says that the tensor is in another shard", shard,
                    place->second);
      }
    }
    std::sort(held.begin(), held.end());
    for (const auto& [name, place] : index.shard_of) {
      if (place == shard &&
          !std::binary_search(held.begin(), held.end(), name)) {
        capped_.Add(RejectionCode::kIndexInconsistent, Where(shard, name),
                    "the index names a tensor that the shard does not hold");
      }
    }
  }

  void CheckNoTensorTwice() {
    for (size_t i = 1; i < tensors.size(); ++i) {
      if (tensors[i].name != tensors[i - 1].name) continue;
      capped_.Add(RejectionCode::kTensorDuplicate, tensors[i].name,
                  "two shards hold the tensor",
                  fmt::format("{} and {}", files[tensors[i - 1].file].path(),
                              files[tensors[i].file].path()));
    }
  }

  std::string Where(const std::string& shard, std::string_view tensor) const {
    return fmt::format("{}: {}", (folder_ / shard).string(), tensor);
  }

  fs::path folder_;
  CappedRejections capped_;
  RejectionList rejections_;
};

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
  WeightReader weights(folder);
  if (Result<void> read = weights.Read(); !read.has_value()) {
    rejections.Absorb(std::move(read).error());
  }
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
