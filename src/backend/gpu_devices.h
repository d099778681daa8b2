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
/// What can still be reserved on the GPU of this identity; where the driver
/// does not say without a context, all that it has.
Bytes GpuFreeMemory(std::string_view identity);
/// The version of the driver; empty without one.
std::string GpuDriverVersion();
/// A device on the GPU of this identity, which is one of this machine's.
/// Failure: kDevice.
Result<std::unique_ptr<Device>> MakeGpuDevice(std::string_view identity);

}  // namespace signet::backend
