#include "evidence/json_file.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <system_error>

namespace signet::evidence {

namespace fs = std::filesystem;

Result<void> WriteJsonFile(const nlohmann::ordered_json& object,
                           const fs::path& file, const std::string& what) {
  const auto fail = [&] {
    return Fail(FailureKind::kIo, file.string(),
                fmt::format("the {} cannot be written: {}", what,
                            std::strerror(errno)));
  };
  const std::string text =
      object.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) +
      '\n';
  std::string temporary = file.string() + ".XXXXXX";
  const int descriptor = mkstemp(temporary.data());
  if (descriptor < 0) return fail();
  const auto write_all = [&] {
    std::string_view rest = text;
    while (!rest.empty()) {
      const ssize_t written = write(descriptor, rest.data(), rest.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return false;
      rest.remove_prefix(static_cast<size_t>(written));
    }
    // As any other new file, not mkstemp's 0600.
    const mode_t mask = umask(0);
    umask(mask);
    return fchmod(descriptor, 0666 & ~mask) == 0 && fsync(descriptor) == 0;
  };
  const bool written = write_all();
  const int written_errno = errno;
  const bool closed = close(descriptor) == 0;
  if (!written) errno = written_errno;
  if (!written || !closed ||
      std::rename(temporary.c_str(), file.c_str()) != 0) {
    const auto failure = fail();
    unlink(temporary.c_str());
    return failure;
  }
  return {};
}

Result<bool> IsTaken(const fs::path& file, const std::string& what) {
  std::error_code error;
  const fs::path folder = file.has_parent_path() ? file.parent_path() : ".";
  if (!fs::is_directory(folder, error)) {
    return Reject(RejectionCode::kFileMissing, file.string(),
                  "there is no folder for the " + what, folder.string());
  }
  return fs::symlink_status(file, error).type() != fs::file_type::not_found;
}

}  // namespace signet::evidence
