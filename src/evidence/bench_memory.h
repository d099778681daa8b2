#pragma once
// The most memory this process had resident, file-backed pages included, as
// Linux counts it (/proc/self/status, VmHWM). One thread.

#include <cstdint>
#include <optional>

namespace signet::evidence {

/// Counts from what is resident now. False where the system cannot: the peak is
/// then that of the whole process so far.
bool RestartPeakMemory();

/// Bytes; unset where the system does not say.
std::optional<uint64_t> PeakMemory();

}  // namespace signet::evidence
