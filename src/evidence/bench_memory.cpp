#include "evidence/bench_memory.h"

#include <fstream>
#include <string>

namespace signet::evidence {

bool RestartPeakMemory() {
  // proc(5): "5" resets the peak resident set size.
  std::ofstream file("/proc/self/clear_refs");
  file << "5" << std::flush;
  return file.good();
}

std::optional<uint64_t> PeakMemory() {
  std::ifstream file("/proc/self/status");
  std::string word;
  while (file >> word) {
    uint64_t kib = 0;
    if (word == "VmHWM:" && file >> kib) return 1024 * kib;
  }
  return std::nullopt;
}

}  // namespace signet::evidence
