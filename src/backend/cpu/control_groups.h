#pragma once
// The control groups that hold this process, version 1 and 2.

#include <filesystem>
#include <string_view>
#include <vector>

#include "backend/cpu/system_file.h"

namespace signet::backend::cpu {

struct ControlGroup {
  std::filesystem::path folder;
  int version;  // of the interface: which files the folder has
};

/// The groups in which `controller` may limit this process, with their parents
/// up to what is mounted. A path that is not there (a container sees its own
/// root alone) ends at the mount; what a folder lacks is no limit.
std::vector<ControlGroup> ControlGroupsOf(const SystemRoots& roots,
                                          std::string_view controller);

}  // namespace signet::backend::cpu
