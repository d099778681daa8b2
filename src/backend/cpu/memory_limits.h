#pragma once
// How much memory this process may still take: the machine's, within the
// control groups and resource limits that hold it.

#include "backend/cpu/system_file.h"
#include "base/bytes.h"

namespace signet::backend::cpu {

/// Resource limits on the process's memory; `Bytes::Overflow()` is none.
struct ProcessLimits {
  Bytes address_space = Bytes::Overflow();  // RLIMIT_AS
  Bytes data = Bytes::Overflow();           // RLIMIT_DATA

  static ProcessLimits OfThisProcess();
};

/// MemTotal; zero if it cannot be read.
Bytes TotalMemory(const SystemRoots& roots = {});

/// The least of MemTotal, each control group's limit and each resource limit.
Bytes MemoryLimit(const SystemRoots& roots, const ProcessLimits& limits);

/// The least of MemAvailable, each control group's limit minus its use (version
/// 1 and 2, the group and its parents), and each resource limit minus its use.
/// What cannot be read is no limit; zero if even MemAvailable is not there.
Bytes AvailableMemory(const SystemRoots& roots, const ProcessLimits& limits);

}  // namespace signet::backend::cpu
