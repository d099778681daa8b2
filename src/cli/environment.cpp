#include "cli/environment.h"

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <system_error>

namespace signet::cli {
namespace {

using std::filesystem::path;

std::optional<path> Variable(const char* name) {
  const char* const value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return path(value);
}

std::optional<path> HubFolder() {
  if (auto cache = Variable("HF_HUB_CACHE")) return cache;
  if (auto home = Variable("HF_HOME")) return *home / "hub";
  if (auto home = Variable("HOME")) {
    return *home / ".cache" / "huggingface" / "hub";
  }
  return std::nullopt;
}

path DemoFolder() {
  std::error_code error;
  const path executable =
      std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) {
    const path folder = executable.parent_path();
    for (const char* relative :
         {"../../models/demo", "../share/signet/models/demo"}) {
      const path demo = (folder / relative).lexically_normal();
      if (std::filesystem::is_directory(demo, error)) return demo;
    }
  }
  return SIGNET_DEMO_FOLDER;
}

}  // namespace

SearchPaths SearchPathsOfEnvironment() {
  SearchPaths paths;
  paths.models = Variable("SIGNET_MODELS");
  paths.hub = HubFolder();
  paths.demo = DemoFolder();
  return paths;
}

}  // namespace signet::cli
