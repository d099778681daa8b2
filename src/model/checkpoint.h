#pragma once
// An opened checkpoint folder in the Hugging Face layout: the small JSON files
// and the headers of every safetensors file, with the files kept open for the
// load (contract A3). No tensor byte is read. Immutable after Open; any thread.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/digest.h"
#include "base/id.h"
#include "base/result.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace signet::model {

/// What tells a file from a changed or replaced one.
struct FileIdentity {
  uint64_t device = 0;
  uint64_t inode = 0;
  uint64_t size_bytes = 0;
  int64_t mtime_ns = 0;
  friend bool operator==(const FileIdentity&, const FileIdentity&) = default;
};

/// A file held open for reading. Owns its descriptor.
class OpenedFile {
 public:
  static Result<OpenedFile> Open(const std::filesystem::path& path);
  OpenedFile(OpenedFile&& other) noexcept;
  OpenedFile& operator=(OpenedFile&& other) noexcept;
  ~OpenedFile();

  int descriptor() const { return descriptor_; }
  const std::string& path() const { return path_; }
  const FileIdentity& identity() const { return identity_; }
  /// kChangedFile when the file behind the descriptor, or the one now at
  /// path(), is no longer the one that was opened.
  Result<void> CheckUnchanged() const;
  /// The whole file, refused over `limit_bytes`.
  Result<std::string> ReadAll(uint64_t limit_bytes) const;
  /// Exactly `size` bytes at `offset` into `out`.
  Result<void> ReadAt(uint64_t offset, void* out, uint64_t size) const;

 private:
  OpenedFile(int descriptor, std::string path, FileIdentity identity);
  int descriptor_ = -1;
  std::string path_;
  FileIdentity identity_;
};

/// One tensor as a safetensors header names it. Offsets are of the file.
struct HeaderTensor {
  std::string name;
  std::string dtype_name;              // as written, "BF16"
  std::optional<tensor::DType> dtype;  // unset: not one we compute with
  std::vector<int64_t> shape;          // any number of dimensions
  FileId file;
  uint64_t begin_bytes;
  uint64_t end_bytes;
};

class Checkpoint {
 public:
  /// Opens a folder. Refuses missing, truncated, contradictory files, each
  /// with its path; all of them at once.
  static Result<Checkpoint> Open(const std::filesystem::path& folder);

  const std::string& folder() const { return folder_; }
  const std::string& config_json() const { return config_json_; }
  /// Empty when the folder has none.
  const std::string& generation_config_json() const {
    return generation_config_json_;
  }
  const std::string& tokenizer_config_json() const {
    return tokenizer_config_json_;
  }
  bool has_chat_template() const { return has_chat_template_; }
  /// Unset when the folder has no tokenizer.json.
  const std::optional<OpenedFile>& tokenizer_file() const {
    return tokenizer_file_;
  }
  const IdVector<FileId, OpenedFile>& weight_files() const { return files_; }
  /// Ascending by name.
  const std::vector<HeaderTensor>& tensors() const { return tensors_; }
  const HeaderTensor* Find(std::string_view name) const;
  /// Of config.json and every header: equal for equal checkpoints anywhere.
  const Digest& digest() const { return digest_; }
  /// kChangedFile for the first weight file that changed since Open.
  Result<void> CheckUnchanged() const;

 private:
  Checkpoint() = default;
  std::string folder_;
  std::string config_json_;
  std::string generation_config_json_;
  std::string tokenizer_config_json_;
  bool has_chat_template_ = false;
  std::optional<OpenedFile> tokenizer_file_;
  IdVector<FileId, OpenedFile> files_;
  std::vector<HeaderTensor> tensors_;
  Digest digest_;
};

}  // namespace signet::model
