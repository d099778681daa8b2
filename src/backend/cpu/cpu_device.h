#pragma once
// A CPU rank as a device: its memory is the process's, its kernels run on a
// thread pool of its own.

#include <memory>

#include "backend/device.h"

namespace signet::backend::cpu {

/// `ordinal` numbers the CPU ranks of this machine; `num_threads` >= 1, the
/// driving thread included. Costs no memory beyond its threads.
std::unique_ptr<Device> MakeCpuDevice(int ordinal, int num_threads);

/// The facts of that device, without making it.
DeviceFacts CpuFacts(int ordinal);

}  // namespace signet::backend::cpu
