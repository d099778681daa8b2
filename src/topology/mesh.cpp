#include "topology/mesh.h"

#include <fmt/format.h>

#include <atomic>
#include <charconv>
#include <set>
#include <utility>

#include "base/check.h"

namespace signet::topology {
namespace {

uint64_t NextEpoch() {
  static std::atomic<uint64_t> next{1};
  const uint64_t epoch = next.fetch_add(1, std::memory_order_relaxed);
  SIGNET_CHECK(epoch != 0);
  return epoch;
}

std::string Spelling(const DeviceIdentity& device) {
  return fmt::format("{}:{}", device.backend, device.ordinal);
}

}  // namespace

Result<MeshSpec> MeshSpec::Parse(std::string_view text) {
  MeshSpec spec;
  if (text == "single") return spec;
  const auto refuse = [&](std::string message) {
    return Reject(RejectionCode::kMeshUnparsable, "--mesh", std::move(message),
                  std::string(text), "single, or axes as pp=2,ep=2");
  };
  int64_t product = 1;
  std::string_view rest = text;
  while (true) {
    const size_t comma = rest.find(',');
    const std::string_view part = rest.substr(0, comma);
    const size_t equals = part.find('=');
    if (equals == std::string_view::npos) {
      return refuse("a mesh axis needs a name and a size");
    }
    const std::optional<Axis> axis = ParseAxis(part.substr(0, equals));
    if (!axis) return refuse("unknown mesh axis");
    const std::string_view digits = part.substr(equals + 1);
    int64_t size = 0;
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), size);
    if (error != std::errc() || end != digits.data() + digits.size()) {
      return refuse("a mesh axis size is not a number");
    }
    if (size < 1) return refuse("a mesh axis size is under 1");
    for (const AxisSize& other : spec.axes_) {
      if (other.axis == *axis) {
        return Reject(RejectionCode::kMeshAxisRepeated, "--mesh",
                      "a mesh axis is given twice", std::string(Name(*axis)));
      }
    }
    if (__builtin_mul_overflow(product, size, &product) ||
        product > kMaxRanks) {
      return Reject(RejectionCode::kMeshTooLarge, "--mesh",
                    "the mesh has too many ranks", std::string(text),
                    fmt::format("at most {}", kMaxRanks));
    }
    spec.axes_.push_back({*axis, size});
    if (comma == std::string_view::npos) break;
    rest = rest.substr(comma + 1);
  }
  return spec;
}

int64_t MeshSpec::num_ranks() const {
  int64_t product = 1;
  for (const AxisSize& axis : axes_) product *= axis.size;
  return product;
}

std::string MeshSpec::ToString() const {
  if (axes_.empty()) return "single";
  std::string text;
  for (const AxisSize& axis : axes_) {
    if (!text.empty()) text += ',';
    text += fmt::format("{}={}", Name(axis.axis), axis.size);
  }
  return text;
}

Mesh::Mesh(MeshSpec spec, std::vector<DeviceIdentity> devices, bool emulated,
           uint64_t epoch)
    : spec_(std::move(spec)),
      devices_(std::move(devices)),
      emulated_(emulated),
      epoch_(epoch) {}

Result<Mesh> Mesh::Make(const MeshSpec& spec,
                        std::vector<DeviceIdentity> devices,
                        Emulation emulation) {
  if (static_cast<int64_t>(devices.size()) != spec.num_ranks()) {
    return Reject(RejectionCode::kDevicesInvalid, "--devices",
                  "the mesh needs one device a rank",
                  std::to_string(devices.size()),
                  std::to_string(spec.num_ranks()));
  }
  bool repeated = false;
  std::set<std::string> seen;
  for (const DeviceIdentity& device : devices) {
    if (seen.insert(device.uuid).second) continue;
    repeated = true;
    if (emulation == Emulation::kRefused || device.backend == "cpu") {
      return Reject(RejectionCode::kDeviceRepeated, "--devices",
                    "a device is listed for two ranks", Spelling(device));
    }
  }
  // CPU ranks of one host are emulated by definition (M4).
  const bool cpu_ranks = devices.size() > 1 && devices.front().backend == "cpu";
  return Mesh(spec, std::move(devices), repeated || cpu_ranks, NextEpoch());
}

int64_t Mesh::size(Axis axis) const {
  for (const AxisSize& entry : spec_.axes()) {
    if (entry.axis == axis) return entry.size;
  }
  return 1;
}

int64_t Mesh::Coordinate(Axis axis, Rank rank) const {
  SIGNET_CHECK(rank.value() >= 0 && rank.value() < num_ranks());
  int64_t rest = rank.value();
  const std::vector<AxisSize>& axes = spec_.axes();
  for (auto entry = axes.rbegin(); entry != axes.rend(); ++entry) {
    const int64_t coordinate = rest % entry->size;
    if (entry->axis == axis) return coordinate;
    rest /= entry->size;
  }
  return 0;
}

std::vector<Rank> Mesh::Group(Axis axis, Rank rank) const {
  int64_t stride = 1;
  const std::vector<AxisSize>& axes = spec_.axes();
  for (auto entry = axes.rbegin(); entry != axes.rend(); ++entry) {
    if (entry->axis == axis) {
      const int64_t first = rank.value() - Coordinate(axis, rank) * stride;
      std::vector<Rank> group;
      for (int64_t i = 0; i < entry->size; ++i) {
        group.push_back(Rank(static_cast<int32_t>(first + i * stride)));
      }
      return group;
    }
    stride *= entry->size;
  }
  return {rank};
}

}  // namespace signet::topology
