#pragma once
// What a device can do at best, measured: how fast it reads its memory and
// multiplies. Shares in a report are of these.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "backend/device.h"
#include "base/result.h"
#include "model/checkpoint.h"

namespace signet::evidence {

/// What was read to measure how fast a device reads.
enum class ReadOf {
  kMemory,  // of the device, taken for it
  kFiles,   // those of the checkpoint, mapped as the weights are
};
std::string_view Name(ReadOf read_of);

/// 0 where it was not measured.
struct Ceilings {
  double read_bytes_per_second = 0;
  ReadOf read_of = ReadOf::kMemory;
  double operations_per_second = 0;  // a multiply-add is two
  std::string operations;            // of what: "fp32", "bf16"
  double host_to_device_bytes_per_second = 0;
};

/// `threads`: those of the measured program; a CPU is read by up to twice as
/// many. A CPU reads the files of the checkpoint where they are larger than its
/// caches. Failure: kDevice, kIo, kMemory.
Result<Ceilings> MeasureCeilings(backend::Device& device,
                                 const model::Checkpoint& checkpoint,
                                 int threads);

/// Of a CPU, by up to `bytes` of the checkpoint's files, the largest first.
/// Failure: kChangedFile, kDevice, kIo.
Result<Ceilings> MeasureOnFiles(backend::Device& device,
                                const model::Checkpoint& checkpoint,
                                uint64_t bytes, int threads);

/// Reads `regions`, each at an address that divides by 4 and together not
/// empty, and multiplies in registers. Failure: kDevice where a thread is
/// lacking.
Result<Ceilings> MeasureCpuCeilings(
    std::span<const std::span<const std::byte>> regions, int threads);

}  // namespace signet::evidence
