#include "topology/mesh.h"

#include <gtest/gtest.h>

namespace signet::topology {
namespace {

std::vector<DeviceIdentity> Cpus(int count) {
  std::vector<DeviceIdentity> devices;
  for (int i = 0; i < count; ++i) {
    devices.push_back({.backend = "cpu",
                       .uuid = "machine/" + std::to_string(i),
                       .pci = "",
                       .ordinal = i,
                       .architecture = "AVX3"});
  }
  return devices;
}

Mesh MakeMesh(std::string_view text) {
  const MeshSpec spec = *MeshSpec::Parse(text);
  return *Mesh::Make(spec, Cpus(static_cast<int>(spec.num_ranks())),
                     Emulation::kRefused);
}

template <typename T>
bool Refuses(const Result<T>& result, RejectionCode code) {
  return !result.has_value() && std::get<Rejections>(result.error()).Has(code);
}

TEST(Mesh, M1_ParsesNamedAxesInOrder) {
  EXPECT_EQ(MeshSpec::Parse("single")->num_ranks(), 1);
  const MeshSpec spec = *MeshSpec::Parse("pp=2,ep=4");
  EXPECT_EQ(spec.num_ranks(), 8);
  EXPECT_EQ(spec.ToString(), "pp=2,ep=4");
  EXPECT_EQ(MeshSpec::Parse("ep=1")->num_ranks(), 1);
}

TEST(Mesh, M1_RefusesBadSizesByOneCode) {
  for (const char* text :
       {"", "ep", "ep=", "ep=0", "ep=-1", "ep=x", "ep=2x", "foo=2", "ep=2,",
        ",ep=2", "ep=1.5", "EP=2", "ep=99999999999999999999", "single,ep=2"}) {
    EXPECT_TRUE(Refuses(MeshSpec::Parse(text), RejectionCode::kMeshUnparsable))
        << text;
  }
}

TEST(Mesh, M1_RefusesARepeatedAxisAndTooManyRanks) {
  EXPECT_TRUE(
      Refuses(MeshSpec::Parse("ep=2,ep=2"), RejectionCode::kMeshAxisRepeated));
  EXPECT_TRUE(
      Refuses(MeshSpec::Parse("ep=4097"), RejectionCode::kMeshTooLarge));
  EXPECT_TRUE(Refuses(MeshSpec::Parse("pp=4294967296,ep=4294967296"),
                      RejectionCode::kMeshTooLarge));
  // 2^12 * 2^62: no ranks at all to who multiplies without looking.
  EXPECT_TRUE(Refuses(MeshSpec::Parse("pp=4096,ep=4611686018427387904"),
                      RejectionCode::kMeshTooLarge));
}

TEST(Mesh, M1_LastAxisIsFastest) {
  const Mesh mesh = MakeMesh("pp=2,ep=3");
  EXPECT_EQ(mesh.Coordinate(Axis::kPp, Rank(4)), 1);
  EXPECT_EQ(mesh.Coordinate(Axis::kEp, Rank(4)), 1);
  EXPECT_EQ(mesh.Coordinate(Axis::kTp, Rank(4)), 0);
}

TEST(Mesh, M2_GroupsShareEveryOtherCoordinate) {
  const Mesh mesh = MakeMesh("pp=2,ep=3");
  EXPECT_EQ(mesh.Group(Axis::kEp, Rank(4)),
            (std::vector<Rank>{Rank(3), Rank(4), Rank(5)}));
  EXPECT_EQ(mesh.Group(Axis::kPp, Rank(4)),
            (std::vector<Rank>{Rank(1), Rank(4)}));
  EXPECT_EQ(mesh.Group(Axis::kTp, Rank(4)), (std::vector<Rank>{Rank(4)}));
}

TEST(Mesh, M3_EveryConstructionHasItsOwnEpoch) {
  const Mesh a = MakeMesh("ep=2");
  const Mesh b = MakeMesh("ep=2");
  EXPECT_NE(a.epoch(), b.epoch());
  const Mesh copy = a;  // NOLINT(performance-unnecessary-copy-initialization)
  EXPECT_EQ(copy.epoch(), a.epoch());
}

TEST(Mesh, M4_OneIdentityARank) {
  const MeshSpec spec = *MeshSpec::Parse("ep=2");
  EXPECT_TRUE(Refuses(Mesh::Make(spec, Cpus(3), Emulation::kRefused),
                      RejectionCode::kDevicesInvalid));
  std::vector<DeviceIdentity> twice = {Cpus(1)[0], Cpus(1)[0]};
  EXPECT_TRUE(Refuses(Mesh::Make(spec, twice, Emulation::kAllowed),
                      RejectionCode::kDeviceRepeated));
  for (DeviceIdentity& device : twice) device.backend = "gpu";
  EXPECT_TRUE(Refuses(Mesh::Make(spec, twice, Emulation::kRefused),
                      RejectionCode::kDeviceRepeated));
  EXPECT_TRUE(Mesh::Make(spec, twice, Emulation::kAllowed)->emulated());
}

TEST(Mesh, M4_CpuRanksOfOneHostAreEmulated) {
  EXPECT_TRUE(MakeMesh("ep=2").emulated());
  EXPECT_FALSE(MakeMesh("single").emulated());
}

}  // namespace
}  // namespace signet::topology
