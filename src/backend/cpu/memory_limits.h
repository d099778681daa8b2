#pragma once
// How much memory this process may still take: the machine's, within the
// control groups and resource limits that hold it.

#include <filesystem>

#include "base/bytes.h"

namespace signet::backend::cpu {

/// Where the kernel tells; replaced by folders of made-up files in tests.
struct SystemRoots {
  std::filesystem::path proc = "/proc";
  std::filesystem::path cgroup = "/sys/fs/cgroup";
};

/// Resource limits on the process's memory; `Bytes::Overflow()` is none.
struct ProcessLimits {
  Bytes address_space = Bytes::Overflow();  // RLIMIT_AS
  Bytes data = Bytes::Overflow();           // RLIMIT_DATA

  static ProcessLimits OfThisProcess();
};

/// MemTotal; zero if it cannot be read.
Bytes TotalMemory(const SystemRoots& roots = {});

/// The least of MemAvailable, each control group's limit minus its use (version
/// 1 and 2, the group and its parents), and each resource limit minus its use.
/// What cannot be read is no limit; zero if even MemAvailable is not there.
Bytes AvailableMemory(const SystemRoots& roots, const ProcessLimits& limits);

}  // namespace signet::backend::cpu
