#include <fmt/format.h>

#include "backend/cpu/cpu_device.h"
#include "backend/cpu/memory_limits.h"
#include "backend/cpu/processors.h"
#include "backend/gpu_devices.h"
#include "engine/boundary.h"
#include "signet/devices.h"

namespace signet {
namespace {

CpuListing ListCpu() {
  const backend::DeviceFacts facts = backend::cpu::CpuFacts(0);
  const auto limits = backend::cpu::ProcessLimits::OfThisProcess();
  return {.name = "cpu:0",
          .uuid = facts.identity,
          .model = backend::cpu::ProcessorModel(),
          .instruction_set = facts.architecture,
          .cores = backend::cpu::OnlineProcessors(),
          .usable_cores = backend::cpu::UsableProcessors(),
          .memory_bytes = facts.memory.value(),
          .limit_bytes = backend::cpu::MemoryLimit({}, limits).value(),
          .free_bytes = backend::cpu::AvailableMemory({}, limits).value()};
}

std::string GpuName(int ordinal) { return fmt::format("gpu:{}", ordinal); }

DeviceListing List() {
  DeviceListing listing = {.cpu = ListCpu(),
                           .no_gpu = backend::GpuAbsence(),
                           .driver = backend::GpuDriverVersion()};
  for (const backend::DeviceFacts& gpu : backend::GpuDevices()) {
    listing.gpus.push_back(
        {.name = GpuName(gpu.ordinal),
         .uuid = gpu.identity,
         .model = gpu.model,
         .pci = gpu.pci,
         .instruction_set = gpu.architecture,
         .memory_bytes = gpu.memory.value(),
         .free_bytes = backend::GpuFreeMemory(gpu.identity).value()});
  }
  for (const backend::GpuLink& link : backend::GpuLinks()) {
    listing.links.push_back(
        {GpuName(link.first), GpuName(link.second), link.kind});
  }
  return listing;
}

}  // namespace

Result<DeviceListing> ListDevices() {
  return AtBoundary("devices",
                    []() -> Result<DeviceListing> { return List(); });
}

}  // namespace signet
