#include "evidence/bench_ceilings.h"

#include <unistd.h>

#include <algorithm>

#include "backend/gpu_ceilings.h"

namespace signet::evidence {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

// More than the last cache holds.
uint64_t CpuReadBytes(Bytes free) {
  const auto cache =
      static_cast<uint64_t>(std::max(0L, sysconf(_SC_LEVEL3_CACHE_SIZE)));
  return std::min(std::max(kGiB, 4 * cache), free.value() / 2);
}

}  // namespace

Result<Ceilings> MeasureCeilings(backend::Device& device, int threads) {
  const backend::DeviceFacts& facts = device.facts();
  if (facts.backend == "cpu") {
    return MeasureCpuCeilings(CpuReadBytes(device.FreeMemory()), threads);
  }
  SIGNET_ASSIGN_OR_RETURN(const backend::GpuCeilings gpu,
                          backend::MeasureGpuCeilings(facts.identity));
  return Ceilings{
      .read_bytes_per_second = gpu.read_bytes_per_second,
      .operations_per_second = gpu.bf16_flops,
      .operations = "bf16",
      .host_to_device_bytes_per_second = gpu.host_to_device_bytes_per_second};
}

}  // namespace signet::evidence
