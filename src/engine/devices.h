#pragma once
// From the words of --devices to one device identity a rank.

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "topology/mesh.h"

namespace signet {

/// `cpu` or `gpu` alone: as many as the mesh has ranks; else exactly one entry
/// a rank, `cpu:0,cpu:1`. Empty: GPUs if the machine has enough, else CPU
/// ranks. kDevicesInvalid, kDeviceUnavailable.
Result<std::vector<topology::DeviceIdentity>> ChooseDevices(
    std::string_view list, int64_t num_ranks);

/// The identity of this process's rank in a world of processes, one a rank:
/// `list` as above, read as this process's machine has it.
Result<topology::DeviceIdentity> ChooseDevice(std::string_view list,
                                              int64_t num_ranks, int rank);

/// What ranks of one machine have in common.
std::string_view HostOf(const topology::DeviceIdentity& device);
/// The ranks whose devices are of this machine.
std::vector<Rank> RanksHere(const topology::Mesh& mesh);

/// `cpu:0`.
std::string DeviceName(const topology::DeviceIdentity& device);

}  // namespace signet
