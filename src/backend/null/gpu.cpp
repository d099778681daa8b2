#include "backend/gpu_devices.h"

namespace signet::backend {

std::vector<DeviceFacts> GpuDevices() { return {}; }

}  // namespace signet::backend
