// A prompt read in chunks of any size on a GPU ends in the same state, within
// bounds: the chunks cut sums differently, and those of up to 8 rows do not
// round what products read (contract N1).

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backend/gpu_devices.h"
#include "support/checkpoints.h"
#include "support/running_model.h"
#include "support/snapshot.h"

namespace signet::testing {
namespace {

// Of ‖Δ‖₂ / ‖ref‖₂: twice the worst that was measured on one H200.
constexpr double kBetweenRounded = 3.4e-3;
constexpr double kOfRounding = 6.4e-2;

constexpr int64_t kPrompt = 2100;
constexpr int64_t kMaxUnrounded = 8;  // rows

Snapshot Read(const std::string& checkpoint, int64_t chunk) {
  RunningModel model(
      CheckpointFolder(checkpoint),
      {.context = kPrompt + 1, .page_tokens = 16, .prefill_chunks = {chunk}},
      RunsOn{.device = ValueOrDie(backend::MakeGpuDevice(
                 backend::GpuDevices().front().identity)),
             .recorded = true});
  SequenceUnderTest sequence(&model, SequenceSlot(0));
  sequence.Prefill(SeededIds(model.plan().config().vocab, kPrompt, 9));
  return sequence.Take();
}

template <typename T>
double Distance(const std::vector<T>& got, const std::vector<T>& want) {
  EXPECT_EQ(got.size(), want.size());
  double difference = 0;
  double whole = 0;
  for (size_t i = 0; i < std::min(got.size(), want.size()); ++i) {
    const double g = got[i];
    const double w = want[i];
    difference += (g - w) * (g - w);
    whole += w * w;
  }
  EXPECT_GT(whole, 0);
  return std::sqrt(difference / whole);
}

// The farthest of the logits after the prompt and of the states, by name.
double Farthest(const Snapshot& got, const Snapshot& want) {
  std::map<std::string, double> distances;
  distances["logits"] = Distance(got.logits, want.logits);
  for (const auto& [name, tensor] : want.state) {
    distances[name] = Distance(got.state.at(name).data, tensor.data);
  }
  const auto farthest = std::max_element(
      distances.begin(), distances.end(),
      [](const auto& a, const auto& b) { return a.second < b.second; });
  fmt::print("  {} {:.2e}", farthest->first, farthest->second);
  // What is not a number is not below a bound either.
  for (const auto& [name, distance] : distances) {
    EXPECT_TRUE(std::isfinite(distance)) << name;
  }
  return farthest->second;
}

class ChunkSizes : public ::testing::TestWithParam<std::string> {};

TEST_P(ChunkSizes, EndInOneState) {
  if (backend::GpuDevices().empty()) {
    GTEST_SKIP() << "no GPU here: " << backend::GpuAbsence();
  }
  const Snapshot want = Read(GetParam(), 64);
  EXPECT_FALSE(want.state.empty());
  for (const int64_t chunk : {1, 333, 2048, 8192}) {
    fmt::print("{}, chunks of {} and of 64:", GetParam(), chunk);
    const double farthest = Farthest(Read(GetParam(), chunk), want);
    fmt::print("\n");
    EXPECT_LE(farthest, chunk <= kMaxUnrounded ? kOfRounding : kBetweenRounded)
        << "chunks of " << chunk;
    // Else it was compared with itself.
    if (chunk <= kMaxUnrounded) EXPECT_GT(farthest, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Gpu, ChunkSizes,
                         ::testing::Values("moe_wide", "moe_fused_nested",
                                           "dense_r3"));

}  // namespace
}  // namespace signet::testing
