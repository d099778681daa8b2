#include "backend/gpu_devices.h"

namespace signet::backend {

std::vector<DeviceFacts> GpuDevices() { return {}; }
std::string GpuAbsence() { return "this build has no GPU backend"; }
std::vector<GpuLink> GpuLinks() { return {}; }
Bytes GpuFreeMemory(std::string_view) { return {}; }
std::string GpuDriverVersion() { return {}; }

Result<std::unique_ptr<Device>> MakeGpuDevice(std::string_view identity) {
  return Fail(FailureKind::kDevice, std::string(identity),
              "this build has no GPU backend");
}

}  // namespace signet::backend
