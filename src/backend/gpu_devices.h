#pragma once
// The GPUs of this machine. A build without a GPU toolchain links the one in
// null/, which finds none.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backend/device.h"

namespace signet::backend {

/// In ordinal order; asks the driver, makes no context.
std::vector<DeviceFacts> GpuDevices();
/// Why there are none, one sentence; empty if there are.
std::string GpuAbsence();

/// How two GPUs reach each other's memory, ordinals ascending.
struct GpuLink {
  int first = 0;
  int second = 0;
  /// `nvlink`, `pcie`, or `host`: not at all, so through the host's memory.
  std::string kind;
};
/// One a pair of GPUs.
std::vector<GpuLink> GpuLinks();
/// What can still be reserved on the GPU of this identity; where the driver
/// does not say without a context, all that it has.
Bytes GpuFreeMemory(std::string_view identity);
/// The version of the driver; empty without one.
std::string GpuDriverVersion();
/// A device on the GPU of this identity, which is one of this machine's.
/// Failure: kDevice.
Result<std::unique_ptr<Device>> MakeGpuDevice(std::string_view identity);

}  // namespace signet::backend
