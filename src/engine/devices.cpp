#include "engine/devices.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>

#include "backend/cpu/cpu_device.h"
#include "backend/gpu_devices.h"

namespace signet {
namespace {

topology::DeviceIdentity Identity(const backend::DeviceFacts& facts) {
  return {.backend = facts.backend,
          .uuid = facts.identity,
          .pci = facts.pci,
          .ordinal = facts.ordinal,
          .architecture = facts.architecture,
          .memory_bytes = facts.memory.value()};
}

Result<topology::DeviceIdentity> Find(std::string_view backend, int ordinal) {
  if (backend == "cpu") return Identity(backend::cpu::CpuFacts(ordinal));
  for (const backend::DeviceFacts& gpu : backend::GpuDevices()) {
    if (gpu.ordinal == ordinal) return Identity(gpu);
  }
  return Reject(RejectionCode::kDeviceUnavailable, "--devices",
                "this machine, or this build, has no such device",
                fmt::format("{}:{}", backend, ordinal));
}

struct Entry {
  std::string backend;
  std::optional<int> ordinal;
};

Result<Entry> ParseEntry(std::string_view text) {
  const size_t colon = text.find(':');
  const std::string_view backend = text.substr(0, colon);
  const auto refuse = [&](const char* message) {
    return Reject(RejectionCode::kDevicesInvalid, "--devices", message,
                  std::string(text), "cpu, gpu, or one cpu:N or gpu:N a rank");
  };
  if (backend != "cpu" && backend != "gpu") return refuse("unknown device");
  if (colon == std::string_view::npos) {
    return Entry{std::string(backend), std::nullopt};
  }
  const std::string_view digits = text.substr(colon + 1);
  int ordinal = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), ordinal);
  if (error != std::errc() || end != digits.data() + digits.size() ||
      ordinal < 0) {
    return refuse("a device ordinal is not a number");
  }
  return Entry{std::string(backend), ordinal};
}

}  // namespace

Result<std::vector<topology::DeviceIdentity>> ChooseDevices(
    std::string_view list, int64_t num_ranks) {
  std::vector<Entry> entries;
  if (list.empty()) {
    const bool enough =
        static_cast<int64_t>(backend::GpuDevices().size()) >= num_ranks;
    entries.push_back({enough ? "gpu" : "cpu", std::nullopt});
  }
  while (!list.empty()) {
    const size_t comma = list.find(',');
    SIGNET_ASSIGN_OR_RETURN(Entry entry, ParseEntry(list.substr(0, comma)));
    entries.push_back(std::move(entry));
    if (comma == std::string_view::npos) break;
    list = list.substr(comma + 1);
    if (list.empty()) SIGNET_RETURN_IF_ERROR(ParseEntry(list));
  }
  if (entries.size() == 1 && !entries[0].ordinal) {
    const std::string backend = entries[0].backend;
    entries.clear();
    for (int64_t r = 0; r < num_ranks; ++r) {
      entries.push_back({backend, static_cast<int>(r)});
    }
  }
  std::vector<topology::DeviceIdentity> devices;
  for (const Entry& entry : entries) {
    if (!entry.ordinal) {
      return Reject(RejectionCode::kDevicesInvalid, "--devices",
                    "a device of a list needs its number", entry.backend,
                    entry.backend + ":0");
    }
    SIGNET_ASSIGN_OR_RETURN(topology::DeviceIdentity device,
                            Find(entry.backend, *entry.ordinal));
    devices.push_back(std::move(device));
  }
  return devices;
}

Result<topology::DeviceIdentity> ChooseDevice(std::string_view list,
                                              int64_t num_ranks, int rank) {
  SIGNET_ASSIGN_OR_RETURN(std::vector<topology::DeviceIdentity> devices,
                          ChooseDevices(list, num_ranks));
  if (static_cast<int64_t>(devices.size()) != num_ranks) {
    return Reject(RejectionCode::kDevicesInvalid, "--devices",
                  "the mesh needs one device a rank",
                  std::to_string(devices.size()), std::to_string(num_ranks));
  }
  return std::move(devices[static_cast<size_t>(rank)]);
}

std::string_view HostOf(const topology::DeviceIdentity& device) {
  return std::string_view(device.uuid).substr(0, device.uuid.find('/'));
}

std::vector<Rank> RanksHere(const topology::Mesh& mesh) {
  const topology::DeviceIdentity here = Identity(backend::cpu::CpuFacts(0));
  std::vector<Rank> ranks;
  for (int r = 0; r < mesh.num_ranks(); ++r) {
    // Ranks on GPUs do not cross processes yet.
    if (mesh.device(Rank(r)).is_gpu() ||
        HostOf(mesh.device(Rank(r))) == HostOf(here)) {
      ranks.push_back(Rank(r));
    }
  }
  return ranks;
}

std::string DeviceName(const topology::DeviceIdentity& device) {
  return fmt::format("{}:{}", device.backend, device.ordinal);
}

}  // namespace signet
