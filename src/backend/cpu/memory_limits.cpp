#include "backend/cpu/memory_limits.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "backend/cpu/control_groups.h"
#include "backend/cpu/system_file.h"

namespace signet::backend::cpu {
namespace {

namespace fs = std::filesystem;

std::optional<uint64_t> NumberInFile(const fs::path& path) {
  return LeadingNumber(SystemFile(path));
}

// The value of `key` in a file of lines `key value ...`.
std::optional<uint64_t> FieldInFile(const fs::path& path,
                                    std::string_view key) {
  const std::string text = SystemFile(path);
  std::string_view rest = text;
  while (!rest.empty()) {
    std::string_view line = TakeNext(rest);
    if (TakeNext(line, kBlanks) == key) {
      return LeadingNumber(TakeNext(line, kBlanks));
    }
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

const GroupFiles& FilesOf(const ControlGroup& group) {
  return group.version == 1 ? kVersion1 : kVersion2;
}

Bytes GroupLimit(const ControlGroup& group) {
  const auto limit = NumberInFile(group.folder / FilesOf(group).limit);
  return limit ? Bytes(*limit) : Bytes::Overflow();
}

// What a group leaves. Pages of files count as use there but are given up on
// demand, so they are free here, as they are in MemAvailable; a checkpoint that
// was read once would otherwise fill its own limit.
Bytes GroupRest(const ControlGroup& group) {
  const Bytes limit = GroupLimit(group);
  if (limit.overflowed()) return limit;
  const GroupFiles& files = FilesOf(group);
  const Bytes used(NumberInFile(group.folder / files.used).value_or(0));
  const fs::path stat = group.folder / "memory.stat";
  const Bytes cached = Bytes(FieldInFile(stat, files.inactive).value_or(0)) +
                       Bytes(FieldInFile(stat, files.active).value_or(0));
  return Rest(limit, Rest(used, cached));
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

Bytes MemoryLimit(const SystemRoots& roots, const ProcessLimits& limits) {
  Bytes least =
      std::min({TotalMemory(roots), limits.address_space, limits.data});
  for (const ControlGroup& group : ControlGroupsOf(roots, "memory")) {
    least = std::min(least, GroupLimit(group));
  }
  return least;
}

Bytes AvailableMemory(const SystemRoots& roots, const ProcessLimits& limits) {
  Bytes least =
      KilobytesField(roots.proc / "meminfo", "MemAvailable:").value_or(Bytes());
  for (const ControlGroup& group : ControlGroupsOf(roots, "memory")) {
    least = std::min(least, GroupRest(group));
  }
  const fs::path status = roots.proc / "self" / "status";
  const Bytes size = KilobytesField(status, "VmSize:").value_or(Bytes());
  const Bytes data = KilobytesField(status, "VmData:").value_or(Bytes());
  least = std::min(least, Rest(limits.address_space, size));
  return std::min(least, Rest(limits.data, data));
}

}  // namespace signet::backend::cpu
