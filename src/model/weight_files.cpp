#include "model/weight_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "model/rejection_cap.h"
#include "model/safetensors_header.h"
#include "model/shard_index.h"

namespace signet::model {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSingleName = "model.safetensors";
constexpr std::string_view kIndexName = "model.safetensors.index.json";

class WeightReader {
 public:
  explicit WeightReader(fs::path folder) : folder_(std::move(folder)) {}

  Result<WeightFiles> Read() {
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
    std::sort(opened_.tensors.begin(), opened_.tensors.end(),
              [](const HeaderTensor& a, const HeaderTensor& b) {
                return a.name < b.name;
              });
    CheckNoTensorTwice();
    capped_.FlushInto(folder_.string(), &rejections_);
    if (!rejections_.empty()) return rejections_.Take();
    return std::move(opened_);
  }

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
      const size_t first = opened_.tensors.size();
      if (!ReadFile(shard)) continue;
      CheckShard(index, shard, first);
    }
    return {};
  }

  /// False when the file was refused.
  bool ReadFile(const std::string& name) {
    Result<OpenedFile> file = OpenedFile::Open(folder_ / name);
    if (!file.has_value()) {
      Note(std::move(file).error());
      return false;
    }
    const FileId id(static_cast<int32_t>(opened_.files.size()));
    Result<SafetensorsHeader> header = ReadSafetensorsHeader(*file, id);
    if (!header.has_value()) {
      Note(std::move(header).error());
      return false;
    }
    opened_.files.Push(*std::move(file));
    opened_.header_digests.push_back(header->digest);
    std::move(header->tensors.begin(), header->tensors.end(),
              std::back_inserter(opened_.tensors));
    return true;
  }

  // An index may name a million files that are not there.
  void Note(Error error) {
    auto* refused = std::get_if<Rejections>(&error);
    if (refused == nullptr) {
      rejections_.Absorb(std::move(error));
      return;
    }
    for (const Rejection& one : refused->list()) {
      capped_.Add(one.code, one.where, one.message, one.got, one.want);
    }
  }

  /// The tensors from `first` on are those of `shard`: they and the index must
  /// say the same.
  void CheckShard(const ShardIndex& index, const std::string& shard,
                  size_t first) {
    std::vector<std::string_view> held;
    for (size_t i = first; i < opened_.tensors.size(); ++i) {
      held.push_back(opened_.tensors[i].name);
      const auto place = index.shard_of.find(opened_.tensors[i].name);
      if (place == index.shard_of.end()) {
        capped_.Add(RejectionCode::kIndexInconsistent,
                    Where(shard, opened_.tensors[i].name),
                    "the shard holds a tensor that the index does not name");
      } else if (place->second != shard) {
        capped_.Add(RejectionCode::kIndexInconsistent,
                    Where(shard, opened_.tensors[i].name),
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
    for (size_t i = 1; i < opened_.tensors.size(); ++i) {
      if (opened_.tensors[i].name != opened_.tensors[i - 1].name) continue;
      capped_.Add(RejectionCode::kTensorDuplicate, opened_.tensors[i].name,
                  "two shards hold the tensor",
                  fmt::format("{} and {}",
                              opened_.files[opened_.tensors[i - 1].file].path(),
                              opened_.files[opened_.tensors[i].file].path()));
    }
  }

  std::string Where(const std::string& shard, std::string_view tensor) const {
    return fmt::format("{}: {}", (folder_ / shard).string(), tensor);
  }

  fs::path folder_;
  WeightFiles opened_;
  CappedRejections capped_;
  RejectionList rejections_;
};

}  // namespace

/// Also true for a broken link: the name is there, opening it will say why not.
bool IsThere(const fs::path& path) {
  std::error_code ignored;
  return fs::symlink_status(path, ignored).type() != fs::file_type::not_found;
}

Result<WeightFiles> OpenWeightFiles(const fs::path& folder) {
  return WeightReader(folder).Read();
}

}  // namespace signet::model
