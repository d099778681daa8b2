#pragma once
// The models known by name, and where a name or a path leads on this machine.
// Reads the file system, never the environment. Functions; any thread.

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace signet::model {

struct RegistryEntry {
  std::string_view name;         // "qwen3.6:35b-a3b"
  std::string_view hub_name;     // "Qwen/Qwen3.6-35B-A3B"; empty: on no hub
  std::string_view config_json;  // as its config.json states it
};

/// In the order in which people see them.
std::span<const RegistryEntry> Registry();
/// Null when the name is not registered.
const RegistryEntry* FindRegistered(std::string_view name);

/// Where names are looked up; the caller reads the environment.
struct SearchPaths {
  std::optional<std::filesystem::path> models;  // $SIGNET_MODELS
  std::optional<std::filesystem::path> hub;     // .../huggingface/hub
  std::filesystem::path demo;                   // empty: no demo here
};

/// The folder that `path_or_name` means. A path (it has a '/', or is a folder)
/// is taken as it is. A registered name is looked up in `models` (as NAME,
/// hub NAME or ORG/NAME), then in `hub`: the snapshot that refs/main names,
/// else the only one, else kSourceAmbiguous with the list; `demo` last, for
/// the demo. kSourceNotFound says where was looked.
Result<std::filesystem::path> Resolve(std::string_view path_or_name,
                                      const SearchPaths& paths);

struct FoundModel {
  std::string_view name;
  std::string_view hub_name;
  std::optional<std::filesystem::path> folder;  // unset: not on this machine
};

/// Every registered name, found or not.
std::vector<FoundModel> ListModels(const SearchPaths& paths);

}  // namespace signet::model
