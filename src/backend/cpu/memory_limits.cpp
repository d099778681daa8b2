#include "backend/cpu/memory_limits.h"

#include <sys/resource.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <fstream>
#include <functional>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>

namespace signet::backend::cpu {
namespace {

namespace fs = std::filesystem;

std::optional<uint64_t> ParseNumber(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  return value;
}

// The number a file starts with; none for "max" or a file that is not there.
std::optional<uint64_t> NumberInFile(const fs::path& path) {
  std::ifstream file(path);
  std::string word;
  if (!(file >> word)) return std::nullopt;
  return ParseNumber(word);
}

// The value of `key` in a file of lines `key value ...`.
std::optional<uint64_t> FieldInFile(const fs::path& path,
                                    std::string_view key) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string name, value;
    if (words >> name >> value && name == key) return ParseNumber(value);
  }
  return std::nullopt;
}

std::optional<Bytes> KilobytesField(const fs::path& path,
                                    std::string_view key) {
  const std::optional<uint64_t> value = FieldInFile(path, key);
  if (!value) return std::nullopt;
  return Bytes(*value) * 1024;
}

Bytes Rest(Bytes limit, Bytes used) {
  return limit > used ? limit - used : Bytes();
}

// The names one version of control groups gives its files.
struct GroupFiles {
  const char* limit;
  const char* used;
  const char* inactive;
  const char* active;
};
constexpr GroupFiles kVersion1 = {"memory.limit_in_bytes",
                                  "memory.usage_in_bytes",
                                  "total_inactive_file", "total_active_file"};
constexpr GroupFiles kVersion2 = {"memory.max", "memory.current",
                                  "inactive_file", "active_file"};

// What a group leaves. Pages of files count as use there but are given up on
// demand, so they are free here, as they are in MemAvailable; a checkpoint that
// was read once would otherwise fill its own limit.
Bytes GroupRest(const fs::path& group, const GroupFiles& files) {
  const std::optional<uint64_t> limit = NumberInFile(group / files.limit);
  if (!limit) return Bytes::Overflow();
  const Bytes used(NumberInFile(group / files.used).value_or(0));
  const fs::path stat = group / "memory.stat";
  const Bytes cached = Bytes(FieldInFile(stat, files.inactive).value_or(0)) +
                       Bytes(FieldInFile(stat, files.active).value_or(0));
  return Rest(Bytes(*limit), Rest(used, cached));
}

// The least that the group at `path` below `mount` and its parents leave. A
// path that is not there (a container sees its own root alone) ends at `mount`.
Bytes HierarchyRest(const fs::path& mount, const std::string& path,
                    const GroupFiles& files) {
  fs::path relative = fs::path(path).lexically_normal().relative_path();
  Bytes least = GroupRest(mount, files);
  while (!relative.empty()) {
    least = std::min(least, GroupRest(mount / relative, files));
    relative = relative.parent_path();
  }
  return least;
}

bool ListHas(std::string_view list, std::string_view word) {
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    if (list.substr(0, comma) == word) return true;
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return false;
}

// Lines of /proc/self/cgroup are `number:controllers:path`; version 2 has
// number 0 and no controllers.
Bytes ControlGroupRest(const SystemRoots& roots) {
  Bytes least = Bytes::Overflow();
  std::ifstream file(roots.proc / "self" / "cgroup");
  std::string line;
  while (std::getline(file, line)) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers.empty()) {
      least = std::min(least, HierarchyRest(roots.cgroup, path, kVersion2));
      least = std::min(
          least, HierarchyRest(roots.cgroup / "unified", path, kVersion2));
    } else if (ListHas(controllers, "memory")) {
      least = std::min(least,
                       HierarchyRest(roots.cgroup / "memory", path, kVersion1));
    }
  }
  return least;
}

Bytes LimitOf(int resource) {
  rlimit limit = {};
  if (getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0 ||
      limit.rlim_cur == RLIM_INFINITY) {
    return Bytes::Overflow();
  }
  return Bytes(limit.rlim_cur);
}

}  // namespace

ProcessLimits ProcessLimits::OfThisProcess() {
  return {.address_space = LimitOf(RLIMIT_AS), .data = LimitOf(RLIMIT_DATA)};
}

Bytes TotalMemory(const SystemRoots& roots) {
  return KilobytesField(roots.proc / "meminfo", "MemTotal:").value_or(Bytes());
}

Bytes AvailableMemory(const SystemRoots& roots, const ProcessLimits& limits) {
  Bytes least =
      KilobytesField(roots.proc / "meminfo", "MemAvailable:").value_or(Bytes());
  least = std::min(least, ControlGroupRest(roots));
  const fs::path status = roots.proc / "self" / "status";
  const Bytes size = KilobytesField(status, "VmSize:").value_or(Bytes());
  const Bytes data = KilobytesField(status, "VmData:").value_or(Bytes());
  least = std::min(least, Rest(limits.address_space, size));
  return std::min(least, Rest(limits.data, data));
}

}  // namespace signet::backend::cpu
