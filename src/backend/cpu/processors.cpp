#include "backend/cpu/processors.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <string_view>
#include <vector>

#include "backend/cpu/control_groups.h"

namespace signet::backend::cpu {
namespace {

constexpr int kNoLimit = std::numeric_limits<int>::max();
constexpr size_t kMaxSets = 64;

int AffinityCount() {
  // A machine may have more processors than one set holds.
  for (size_t sets = 1; sets <= kMaxSets; sets *= 2) {
    std::vector<cpu_set_t> mask(sets);
    const size_t size = sets * sizeof(cpu_set_t);
    if (sched_getaffinity(0, size, mask.data()) == 0) {
      return std::max(1, CPU_COUNT_S(size, mask.data()));
    }
    if (errno != EINVAL) break;
  }
  return 1;
}

int WholeProcessors(std::optional<uint64_t> quota,
                    std::optional<uint64_t> period) {
  if (!quota || !period || *period == 0) return kNoLimit;
  const uint64_t whole = *quota / *period;
  return static_cast<int>(std::clamp<uint64_t>(whole, 1, kNoLimit));
}

// `max` and -1 are no number, so no limit.
int QuotaOf(const ControlGroup& group) {
  if (group.version == 1) {
    return WholeProcessors(
        LeadingNumber(SystemFile(group.folder / "cpu.cfs_quota_us")),
        LeadingNumber(SystemFile(group.folder / "cpu.cfs_period_us")));
  }
  const std::string text = SystemFile(group.folder / "cpu.max");
  std::string_view rest = text;
  const auto quota = LeadingNumber(TakeNext(rest, kBlanks));
  return WholeProcessors(quota, LeadingNumber(TakeNext(rest, kBlanks)));
}

}  // namespace

int OnlineProcessors() {
  return static_cast<int>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
}

int UsableProcessors(const SystemRoots& roots) {
  int least = AffinityCount();
  for (const ControlGroup& group : ControlGroupsOf(roots, "cpu")) {
    least = std::min(least, QuotaOf(group));
  }
  return least;
}

std::string ProcessorModel(const SystemRoots& roots) {
  const std::string text = SystemFile(roots.proc / "cpuinfo");
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::string_view line = TakeNext(rest);
    if (!line.starts_with("model name")) continue;
    const size_t colon = std::min(line.find(": "), line.size());
    return std::string(line.substr(std::min(colon + 2, line.size())));
  }
  return {};
}

}  // namespace signet::backend::cpu
