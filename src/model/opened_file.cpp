#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "model/checkpoint.h"

namespace signet::model {
namespace {

std::string ErrnoText() { return std::generic_category().message(errno); }

FileIdentity IdentityOf(const struct stat& status) {
  return {
      .device = status.st_dev,
      .inode = status.st_ino,
      .size_bytes = static_cast<uint64_t>(status.st_size),
      .mtime_ns =
          status.st_mtim.tv_sec * 1'000'000'000 + status.st_mtim.tv_nsec,
  };
}

}  // namespace

OpenedFile::OpenedFile(int descriptor, std::string path, FileIdentity identity)
    : descriptor_(descriptor), path_(std::move(path)), identity_(identity) {}

OpenedFile::OpenedFile(OpenedFile&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      path_(std::move(other.path_)),
      identity_(other.identity_) {}

OpenedFile& OpenedFile::operator=(OpenedFile&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(path_, other.path_);
  std::swap(identity_, other.identity_);
  return *this;
}

OpenedFile::~OpenedFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Result<OpenedFile> OpenedFile::Open(const std::filesystem::path& path) {
  // O_NONBLOCK: opening a pipe that someone placed here must not wait.
  const int descriptor =
      ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) {
    if (errno == ENOENT || errno == ENOTDIR) {
      return Reject(RejectionCode::kFileMissing, path.string(),
                    "the file does not exist");
    }
    if (errno == EMFILE || errno == ENFILE) {
      return Fail(FailureKind::kIo, path.string(),
                  fmt::format("the file cannot be opened: {}", ErrnoText()));
    }
    return Reject(RejectionCode::kFileUnreadable, path.string(),
                  "the file cannot be opened", ErrnoText());
  }
  OpenedFile file(descriptor, path.string(), {});
  struct stat status;
  if (::fstat(descriptor, &status) != 0) {
    return Fail(FailureKind::kIo, path.string(), ErrnoText());
  }
  if (!S_ISREG(status.st_mode)) {
    return Reject(RejectionCode::kFileUnreadable, path.string(),
                  "not a regular file");
  }
  file.identity_ = IdentityOf(status);
  return file;
}

Result<void> OpenedFile::CheckUnchanged() const {
  struct stat opened;
  struct stat named;
  if (::fstat(descriptor_, &opened) != 0 || IdentityOf(opened) != identity_) {
    return Fail(FailureKind::kChangedFile, path_,
                "the file was changed after it was opened");
  }
  if (::stat(path_.c_str(), &named) != 0 || IdentityOf(named) != identity_) {
    return Fail(FailureKind::kChangedFile, path_,
                "the file was replaced after it was opened");
  }
  return {};
}

Result<std::string> OpenedFile::ReadAll(uint64_t limit_bytes) const {
  if (identity_.size_bytes > limit_bytes) {
    return Reject(RejectionCode::kFileUnreadable, path_,
                  "the file is larger than allowed",
                  fmt::format("{} B", identity_.size_bytes),
                  fmt::format("at most {} B", limit_bytes));
  }
  std::string content(identity_.size_bytes, '\0');
  SIGNET_RETURN_IF_ERROR(ReadAt(0, content.data(), content.size()));
  return content;
}

Result<void> OpenedFile::ReadAt(uint64_t offset, void* out,
                                uint64_t size) const {
  char* next = static_cast<char*>(out);
  while (size > 0) {
    const ssize_t got =
        ::pread(descriptor_, next, size, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      return Fail(
          FailureKind::kIo, path_,
          fmt::format("reading at byte {} failed: {}", offset, ErrnoText()));
    }
    if (got == 0) {
      return Fail(FailureKind::kChangedFile, path_,
                  fmt::format("the file ends at byte {}", offset));
    }
    next += got;
    offset += static_cast<uint64_t>(got);
    size -= static_cast<uint64_t>(got);
  }
  return {};
}

}  // namespace signet::model
