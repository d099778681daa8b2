#include "engine/threads.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <string>

namespace signet {
namespace {

int AffinityCount() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

// Version 2 of the interface; a missing file is no limit.
int QuotaCount() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  std::string quota;
  double period = 0;
  if (!(file >> quota >> period) || quota == "max" || period <= 0) {
    return std::numeric_limits<int>::max();
  }
  char* end = nullptr;
  const double value = std::strtod(quota.c_str(), &end);
  if (end == quota.c_str() || value <= 0) {
    return std::numeric_limits<int>::max();
  }
  return std::max(1, static_cast<int>(std::floor(value / period)));
}

}  // namespace

int WorkingThreads(int wanted) {
  if (wanted > 0) return wanted;
  return std::min(AffinityCount(), QuotaCount());
}

}  // namespace signet
