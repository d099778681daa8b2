#include "support/temporary_folder.h"

#include <unistd.h>

#include <string>
#include <system_error>

namespace signet::testing {
namespace {

namespace fs = std::filesystem;

class Folder {
 public:
  Folder()
      : path_(fs::temp_directory_path() /
              ("signet_test_" + std::to_string(getpid()))) {
    fs::create_directories(path_);
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

}  // namespace

const fs::path& TemporaryFolder() {
  static const Folder folder;
  return folder.path();
}

}  // namespace signet::testing
