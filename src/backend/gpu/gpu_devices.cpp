#include "backend/gpu_devices.h"

#include <fmt/format.h>

#include "backend/gpu/gpu_device.h"
#include "backend/gpu/nvml.h"
#include "backend/gpu/vendor.h"

namespace signet::backend {
namespace {

// As the driver prints it: GPU-8-4-4-4-12.
std::string UuidText(const cudaUUID_t& uuid) {
  std::string text = "GPU";
  for (int i = 0; i < 16; ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", static_cast<unsigned char>(uuid.bytes[i]));
  }
  return text;
}

}  // namespace

std::vector<DeviceFacts> GpuDevices() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != gpu::kOk) return {};
  std::vector<DeviceFacts> devices;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    cudaDeviceProp properties;
    if (cudaGetDeviceProperties(&properties, ordinal) != gpu::kOk) return {};
    devices.push_back(
        {.backend = "gpu",
         .ordinal = ordinal,
         .identity = UuidText(properties.uuid),
         .architecture =
             fmt::format("sm_{}{}", properties.major, properties.minor),
         .memory = Bytes(properties.totalGlobalMem),
         .model = properties.name,
         .pci = fmt::format("{:04x}:{:02x}:{:02x}.0", properties.pciDomainID,
                            properties.pciBusID, properties.pciDeviceID)});
  }
  return devices;
}

std::string GpuAbsence() {
  int count = 0;
  const gpu::Status status = cudaGetDeviceCount(&count);
  if (status == gpu::kOk && count > 0) return {};
  // The runtime says nothing of the kind where the driver is not there at all.
  if (!gpu::HasDriver()) return "this machine has no GPU driver";
  if (status == gpu::kOk) return "the driver shows no GPU";
  return fmt::format("the driver shows no GPU: {}", cudaGetErrorString(status));
}

std::vector<GpuLink> GpuLinks() {
  const std::vector<DeviceFacts> gpus = GpuDevices();
  std::vector<GpuLink> links;
  for (const DeviceFacts& first : gpus) {
    for (const DeviceFacts& second : gpus) {
      if (first.ordinal >= second.ordinal) continue;
      int reaches = 0;
      const bool known = cudaDeviceCanAccessPeer(&reaches, first.ordinal,
                                                 second.ordinal) == gpu::kOk;
      const char* kind = "host";
      if (known && reaches != 0) {
        kind = gpu::NvmlHasNvLink(first.identity, second.identity) ? "nvlink"
                                                                   : "pcie";
      }
      links.push_back({first.ordinal, second.ordinal, kind});
    }
  }
  return links;
}

Bytes GpuFreeMemory(std::string_view identity) {
  if (const auto free = gpu::NvmlFreeBytes(identity)) return Bytes(*free);
  for (const DeviceFacts& device : GpuDevices()) {
    if (device.identity == identity) return device.memory;
  }
  return {};
}

std::string GpuDriverVersion() { return gpu::NvmlDriverVersion(); }

Result<std::unique_ptr<Device>> MakeGpuDevice(std::string_view identity) {
  for (const DeviceFacts& device : GpuDevices()) {
    if (device.identity == identity) return gpu::MakeDevice(device);
  }
  return Fail(FailureKind::kDevice, std::string(identity),
              "this machine has no such GPU");
}

}  // namespace signet::backend
