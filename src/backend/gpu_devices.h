#pragma once
// The GPUs of this machine. A build without a GPU toolchain links the one in
// null/, which finds none.

#include <vector>

#include "backend/device.h"

namespace signet::backend {

/// In ordinal order; asks the driver, makes no context.
std::vector<DeviceFacts> GpuDevices();

}  // namespace signet::backend
