#include "model/synth.h"

#include <dirent.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <system_error>
#include <utility>
#include <vector>

#include "model/filler_tokenizer.h"
#include "model/synth_config.h"
#include "model/synth_tensors.h"
#include "model/synth_writer.h"

namespace signet::model {
namespace {

namespace fs = std::filesystem;

/// Config, index and tokenizer, with room to spare.
constexpr uint64_t kSmallFilesBytes = 64 << 20;

constexpr std::array<const char*, 7> kTokenizerFiles = {
    "tokenizer.json",     "tokenizer_config.json",   "vocab.json",
    "merges.txt",         "special_tokens_map.json", "added_tokens.json",
    "chat_template.jinja"};

tl::unexpected<Error> IoFailure(const fs::path& path, std::string_view what,
                                const std::error_code& error) {
  return Fail(FailureKind::kIo, path.string(),
              fmt::format("{}: {}", what, error.message()));
}

/// A folder of files that is written beside its final place; removed unless it
/// got there, which takes no memory.
class PendingFolder {
 public:
  static Result<PendingFolder> Make(const fs::path& final_place) {
    PendingFolder folder;
    std::error_code error;
    folder.final_ = fs::absolute(final_place, error).lexically_normal();
    if (error) return IoFailure(final_place, "the path has no meaning", error);
    if (!folder.final_.has_filename()) {
      folder.final_ = folder.final_.parent_path();
    }
    const fs::path parent = folder.final_.parent_path();
    if (!fs::is_directory(parent, error)) {
      return Reject(RejectionCode::kFileMissing, parent.string(),
                    "the folder to write into does not exist");
    }
    const bool exists = fs::exists(folder.final_, error);
    if (exists && (!fs::is_directory(folder.final_, error) ||
                   !fs::is_empty(folder.final_, error))) {
      return Reject(RejectionCode::kRequestInvalid, folder.final_.string(),
                    "the place for the checkpoint is taken", {},
                    "nothing there, or an empty folder");
    }
    for (int i = 0; i < kMaxAttempts; ++i) {
      fs::path path = folder.final_;
      path += fmt::format(".partial{}", i);
      if (fs::create_directory(path, error)) {
        folder.entries_ = ::opendir(path.c_str());
        folder.path_ = std::move(path);
        if (folder.entries_ != nullptr) return folder;
        error = std::error_code(errno, std::generic_category());
        ::rmdir(folder.path_.c_str());
      }
      if (error) break;
    }
    return IoFailure(parent, "no folder can be made there", error);
  }
  PendingFolder(PendingFolder&& other) noexcept
      : path_(std::exchange(other.path_, {})),
        final_(std::move(other.final_)),
        entries_(std::exchange(other.entries_, nullptr)) {}
  PendingFolder& operator=(PendingFolder&&) = delete;
  ~PendingFolder() {
    if (entries_ == nullptr) return;
    if (!path_.empty()) {
      ::rewinddir(entries_);
      while (const dirent* entry = ::readdir(entries_)) {
        ::unlinkat(::dirfd(entries_), entry->d_name, 0);
      }
      ::rmdir(path_.c_str());
    }
    ::closedir(entries_);
  }

  const fs::path& path() const { return path_; }
  const fs::path& final_place() const { return final_; }

  /// Moves the folder to its place, which may hold an empty one. The last that
  /// can fail.
  Result<void> Publish() {
    std::error_code error;
    fs::rename(path_, final_, error);
    if (error) return IoFailure(final_, "the folder cannot be placed", error);
    path_.clear();
    return {};
  }

  /// Refuses when the disk lacks the room.
  Result<void> CheckRoom(Bytes needed) const {
    std::error_code error;
    const fs::space_info space = fs::space(path_, error);
    if (error) return IoFailure(path_, "the free space is unknown", error);
    const Bytes available(space.available);
    if (needed <= available) return {};
    return Reject(
        RejectionCode::kRequestInvalid, final_.string(),
        fmt::format("the disk lacks {}", HumanBytes(needed - available)),
        fmt::format("{} B free", available.value()),
        fmt::format("{} B", needed.value()));
  }

 private:
  static constexpr int kMaxAttempts = 1000;
  PendingFolder() = default;
  fs::path path_;
  fs::path final_;
  DIR* entries_ = nullptr;
};

Result<void> WriteText(const fs::path& path, std::string_view text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (file) return {};
  return Fail(FailureKind::kIo, path.string(), "writing failed");
}

/// The config's own tokenizer, or a made one. Says which in `config`.
Result<std::string> WriteTokenizer(const fs::path& folder,
                                   SynthConfig* config) {
  std::error_code error;
  if (config->tokenizer_folder &&
      fs::exists(*config->tokenizer_folder / "tokenizer.json", error)) {
    for (const char* name : kTokenizerFiles) {
      const fs::path from = *config->tokenizer_folder / name;
      if (!fs::exists(from, error)) continue;
      fs::copy_file(from, folder / name, error);
      if (error) return IoFailure(from, "the file cannot be copied", error);
    }
    return "the config's own tokenizer";
  }
  std::string kind = "no tokenizer: fewer tokens than bytes";
  if (config->model.vocab >= kNumByteTokens) {
    SIGNET_RETURN_IF_ERROR(WriteText(folder / "tokenizer.json",
                                     FillerTokenizerJson(config->model.vocab)));
    kind = "byte-level filler";
  }
  JsonTree::Replace(config->json["signet_tokenizer"], kind);
  return kind;
}

}  // namespace

Result<SynthReport> Synthesize(const SynthOptions& options) {
  SIGNET_ASSIGN_OR_RETURN(SynthConfig config, PrepareSynthConfig(options));
  std::vector<SynthTensor> tensors = SynthTensors(config, options);
  SynthReport report;
  report.num_tensors = std::ssize(tensors);
  for (const SynthTensor& tensor : tensors) {
    report.size += Bytes(tensor.size_bytes());
  }
  const std::vector<SynthShard> shards =
      MakeShards(std::move(tensors), options.shard_bytes);
  report.num_shards = static_cast<int>(shards.size());

  SIGNET_ASSIGN_OR_RETURN(PendingFolder folder,
                          PendingFolder::Make(options.folder));
  const Bytes stored = options.sparse ? Bytes() : report.size;
  SIGNET_RETURN_IF_ERROR(folder.CheckRoom(stored + Bytes(kSmallFilesBytes)));
  SIGNET_ASSIGN_OR_RETURN(report.tokenizer,
                          WriteTokenizer(folder.path(), &config));
  SIGNET_RETURN_IF_ERROR(
      WriteText(folder.path() / "config.json", config.json.dump(2) + "\n"));
  SIGNET_RETURN_IF_ERROR(WriteText(
      folder.path() / "model.safetensors.index.json", IndexText(shards)));
  SIGNET_RETURN_IF_ERROR(
      WriteShards(folder.path(), shards,
                  options.sparse ? SynthData::kHoles : SynthData::kDrawn,
                  options.seed, options.threads, options.stop));
  report.folder = folder.final_place();
  report.text =
      fmt::format("{}: {} tensors, {} in {} files, tokenizer: {}",
                  report.folder.string(), report.num_tensors,
                  HumanBytes(report.size), report.num_shards, report.tokenizer);
  SIGNET_RETURN_IF_ERROR(folder.Publish());
  return report;
}

}  // namespace signet::model
