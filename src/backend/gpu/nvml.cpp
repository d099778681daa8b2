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
constexpr int kNvmlP2pNvLink = 2;
constexpr int kNvmlP2pOk = 0;

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
  // Of the two GPUs, what the index names; null in an older library.
  int (*p2p_status)(NvmlDevice, NvmlDevice, int, int*) = nullptr;

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
    find(p2p_status, "nvmlDeviceGetP2PStatus");
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

bool NvmlHasNvLink(const std::string& first, const std::string& second) {
  const Nvml& nvml = Nvml::Get();
  NvmlDevice a = nullptr;
  NvmlDevice b = nullptr;
  int status = kNvmlP2pOk;
  return nvml.loaded() && nvml.p2p_status != nullptr &&
         nvml.handle_by_uuid(first.c_str(), &a) == kNvmlSuccess &&
         nvml.handle_by_uuid(second.c_str(), &b) == kNvmlSuccess &&
         nvml.p2p_status(a, b, kNvmlP2pNvLink, &status) == kNvmlSuccess &&
         status == kNvmlP2pOk;
}

bool HasDriver() {
  void* const library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (library == nullptr) return false;
  dlclose(library);
  return true;
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
