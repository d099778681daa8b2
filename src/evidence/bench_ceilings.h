#pragma once
// What a device can do at best, measured: how fast it reads its memory and
// multiplies. Shares in a report are of these.

#include <cstdint>
#include <string>

#include "backend/device.h"
#include "base/result.h"

namespace signet::evidence {

/// 0 where it was not measured.
struct Ceilings {
  double read_bytes_per_second = 0;
  double operations_per_second = 0;  // a multiply-add is two
  std::string operations;            // of what: "fp32", "bf16"
  double host_to_device_bytes_per_second = 0;
};

/// `threads`: those of the measured program; a CPU is read by up to twice as
/// many. Failure: kDevice, kMemory.
Result<Ceilings> MeasureCeilings(backend::Device& device, int threads);

/// Reads `bytes` of this process's memory, multiplies in registers. Failure:
/// kMemory.
Result<Ceilings> MeasureCpuCeilings(uint64_t bytes, int threads);

}  // namespace signet::evidence
