#pragma once
// Meshes of CPU ranks for the tests of this room.

#include <string>
#include <vector>

#include "topology/mesh.h"

namespace signet::collective {

inline topology::Mesh MakeMesh(const std::string& text) {
  const topology::MeshSpec spec = *topology::MeshSpec::Parse(text);
  std::vector<topology::DeviceIdentity> devices;
  for (int r = 0; r < spec.num_ranks(); ++r) {
    devices.push_back(
        {.backend = "cpu", .uuid = std::to_string(r), .ordinal = r});
  }
  return *topology::Mesh::Make(spec, devices, topology::Emulation::kAllowed);
}

}  // namespace signet::collective
