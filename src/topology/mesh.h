#pragma once
// A device mesh: named axes, ranks numbered row-major with the last axis
// fastest, each bound to one device identity (contract M). A pure host value;
// no driver call. Immutable; any thread.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/id.h"
#include "base/result.h"
#include "topology/axis.h"

namespace signet::topology {

struct AxisSize {
  Axis axis;
  int64_t size;
  friend bool operator==(const AxisSize&, const AxisSize&) = default;
};

/// The wish: `single`, or axes as `pp=2,ep=2`, in order.
class MeshSpec {
 public:
  /// kMeshUnparsable for anything else, sizes under 1 included;
  /// kMeshAxisRepeated; kMeshTooLarge when the product exceeds kMaxRanks.
  static Result<MeshSpec> Parse(std::string_view text);
  static constexpr int64_t kMaxRanks = 4096;

  const std::vector<AxisSize>& axes() const { return axes_; }
  int64_t num_ranks() const;
  /// Canonical text; parses to an equal spec.
  std::string ToString() const;
  friend bool operator==(const MeshSpec&, const MeshSpec&) = default;

 private:
  MeshSpec() = default;
  std::vector<AxisSize> axes_;
};

/// Facts of one physical device. Two ranks on one device need emulation.
struct DeviceIdentity {
  std::string backend;  // "cpu", "gpu"
  std::string uuid;     // machine id and ordinal for a CPU
  std::string pci;      // empty for a CPU
  int ordinal = 0;
  std::string architecture;  // "AVX3", "sm_90"
  uint64_t memory_bytes = 0;
  /// Whether it computes from memory of its own, into which weights must be
  /// copied, and not from files that the host has mapped.
  bool is_gpu() const { return backend == "gpu"; }
  friend bool operator==(const DeviceIdentity&,
                         const DeviceIdentity&) = default;
};

enum class Emulation { kRefused, kAllowed };

class Mesh {
 public:
  /// One identity a rank, in rank order. kDevicesInvalid when the counts
  /// differ, kDeviceRepeated for a device listed twice without emulation.
  static Result<Mesh> Make(const MeshSpec& spec,
                           std::vector<DeviceIdentity> devices,
                           Emulation emulation);

  const MeshSpec& spec() const { return spec_; }
  int num_ranks() const { return static_cast<int>(devices_.size()); }
  /// 1 for an absent axis.
  int64_t size(Axis axis) const;
  /// Position of `rank` along `axis`; 0 for an absent axis. `rank` is of this
  /// mesh.
  int64_t Coordinate(Axis axis, Rank rank) const;
  /// The ranks that share every other coordinate, in axis order; an absent
  /// axis gives the singleton (M2).
  std::vector<Rank> Group(Axis axis, Rank rank) const;
  const DeviceIdentity& device(Rank rank) const {
    return devices_[static_cast<size_t>(rank.value())];
  }
  /// Unique to every construction; copies share it (M3).
  uint64_t epoch() const { return epoch_; }
  bool emulated() const { return emulated_; }

 private:
  Mesh(MeshSpec spec, std::vector<DeviceIdentity> devices, bool emulated,
       uint64_t epoch);
  MeshSpec spec_;
  std::vector<DeviceIdentity> devices_;
  bool emulated_;
  uint64_t epoch_;
};

}  // namespace signet::topology
