// tiny_checkpoints DIR: writes every generated checkpoint into DIR/NAME, for
// the Python that compares with transformers.

#include <cstdio>
#include <filesystem>
#include <string>
#include <system_error>

#include "signet/error.h"
#include "support/tiny_checkpoint.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: tiny_checkpoints DIR\n");
    return 2;
  }
  const std::filesystem::path root(argv[1]);
  std::error_code error;
  std::filesystem::create_directories(root, error);
  for (const std::string& name : signet::testing::TinyCheckpointNames()) {
    const signet::Result<void> written =
        signet::testing::WriteTinyCheckpoint(name, root / name);
    if (!written.has_value()) {
      std::fprintf(stderr, "%s\n", signet::Describe(written.error()).c_str());
      return signet::ExitCode(written.error());
    }
    std::printf("%s\n", (root / name).c_str());
  }
  return 0;
}
