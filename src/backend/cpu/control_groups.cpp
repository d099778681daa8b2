#include "backend/cpu/control_groups.h"

#include <algorithm>
#include <string>

namespace signet::backend::cpu {
namespace {

namespace fs = std::filesystem;

bool ListHas(std::string_view list, std::string_view word) {
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    if (list.substr(0, comma) == word) return true;
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return false;
}

// The group at `path` below `mount`, its parents, and what is mounted.
void AddHierarchy(const fs::path& mount, std::string_view path, int version,
                  std::vector<ControlGroup>& groups) {
  fs::path relative = fs::path(path).lexically_normal().relative_path();
  while (!relative.empty()) {
    groups.push_back({mount / relative, version});
    relative = relative.parent_path();
  }
  groups.push_back({mount, version});
}

}  // namespace

// Lines of /proc/self/cgroup are `number:controllers:path`; version 2 has
// number 0 and no controllers.
std::vector<ControlGroup> ControlGroupsOf(const SystemRoots& roots,
                                          std::string_view controller) {
  std::vector<ControlGroup> groups;
  const std::string text = SystemFile(roots.proc / "self" / "cgroup");
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::string_view line = TakeNext(rest);
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string_view::npos || second == std::string_view::npos) {
      continue;
    }
    const std::string_view controllers =
        line.substr(first + 1, second - first - 1);
    const std::string_view path = line.substr(second + 1);
    if (controllers.empty()) {
      AddHierarchy(roots.cgroup, path, 2, groups);
      AddHierarchy(roots.cgroup / "unified", path, 2, groups);
    } else if (ListHas(controllers, controller)) {
      AddHierarchy(roots.cgroup / controller, path, 1, groups);
    }
  }
  return groups;
}

}  // namespace signet::backend::cpu
