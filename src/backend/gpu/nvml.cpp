#include "backend/gpu/nvml.h"

#include <dlfcn.h>

namespace signet::backend::gpu {
namespace {

// The few entry points used, as nvml.h declares them.
using NvmlDevice = void*;
struct NvmlMemory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};
constexpr int kNvmlSuccess = 0;

class Nvml {
 public:
  // Never unloaded: the driver keeps threads of its own.
  static const Nvml& Get() {
    static const Nvml nvml;
    return nvml;
  }
  bool loaded() const { return loaded_; }

  int (*handle_by_uuid)(const char*, NvmlDevice*) = nullptr;
  int (*memory_info)(NvmlDevice, NvmlMemory*) = nullptr;
  int (*driver_version)(char*, unsigned) = nullptr;

 private:
  Nvml() {
    void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return;
    int (*init)() = nullptr;
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(
          dlsym(library, name));
      return function != nullptr;
    };
    loaded_ = find(init, "nvmlInit_v2") &&
              find(handle_by_uuid, "nvmlDeviceGetHandleByUUID") &&
              find(memory_info, "nvmlDeviceGetMemoryInfo") &&
              find(driver_version, "nvmlSystemGetDriverVersion") &&
              init() == kNvmlSuccess;
  }
  bool loaded_ = false;
};

}  // namespace

std::optional<uint64_t> NvmlFreeBytes(std::string_view uuid) {
  const Nvml& nvml = Nvml::Get();
  NvmlDevice device = nullptr;
  NvmlMemory memory = {};
  if (!nvml.loaded() ||
      nvml.handle_by_uuid(std::string(uuid).c_str(), &device) != kNvmlSuccess ||
      nvml.memory_info(device, &memory) != kNvmlSuccess) {
    return std::nullopt;
  }
  return memory.free;
}

std::string NvmlDriverVersion() {
  const Nvml& nvml = Nvml::Get();
  char version[96] = {};
  if (!nvml.loaded() ||
      nvml.driver_version(version, sizeof version) != kNvmlSuccess) {
    return {};
  }
  return version;
}

}  // namespace signet::backend::gpu
