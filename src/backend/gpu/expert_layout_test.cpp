#include "backend/gpu/expert_layout.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace signet::backend::gpu {
namespace {

const void* At(uintptr_t address) {
  return reinterpret_cast<const void*>(address);
}

// `count` experts of three matrices each, one after another.
std::vector<ExpertPointers> Experts(int count) {
  std::vector<ExpertPointers> experts;
  for (uintptr_t e = 0; e < static_cast<uintptr_t>(count); ++e) {
    const uintptr_t begin = 4096 + 3 * 256 * e;
    experts.push_back({At(begin), At(begin + 256), At(begin + 512)});
  }
  return experts;
}

TEST(ExpertLayoutTest, OneDistance) {
  const ExpertLayout layout = LayoutOf(Experts(4));
  EXPECT_EQ(layout.gate.first, At(4096));
  EXPECT_EQ(layout.up.first, At(4096 + 256));
  EXPECT_EQ(layout.down.first, At(4096 + 512));
  EXPECT_EQ(layout.down.apart, 3 * 256);
  EXPECT_EQ(LayoutOf(Experts(1)).up.first, At(4096 + 256));
}

TEST(ExpertLayoutTest, OtherwiseNone) {
  EXPECT_EQ(LayoutOf({}).gate.first, nullptr);
  std::vector<ExpertPointers> experts = Experts(4);
  experts[2].up = At(4096 + 16);
  EXPECT_EQ(LayoutOf(experts).up.first, nullptr);
  EXPECT_NE(LayoutOf(experts).gate.first, nullptr);
  // Downwards, and between what a copy may begin at.
  experts = Experts(2);
  std::swap(experts[0], experts[1]);
  EXPECT_EQ(LayoutOf(experts).gate.first, nullptr);
  experts = {{At(4096), At(8), At(4096)}, {At(4096 + 8), At(24), At(8192)}};
  EXPECT_EQ(LayoutOf(experts).gate.first, nullptr);
  EXPECT_EQ(LayoutOf(experts).up.first, nullptr);
  EXPECT_EQ(LayoutOf(experts).down.first, At(4096));
}

}  // namespace
}  // namespace signet::backend::gpu
