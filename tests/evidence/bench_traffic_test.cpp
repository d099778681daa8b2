// The bytes and operations of a call, against the figures the flagship was
// designed by.

#include "evidence/bench_traffic.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "evidence/verify_testing.h"
#include "model/registry.h"
#include "support/running_model.h"
#include "support/sparse_checkpoint.h"
#include "support/temporary_folder.h"

namespace signet::testing {
namespace {

using evidence::Cost;
using evidence::Costs;
using evidence::DecodeCosts;
using evidence::FloorSeconds;
using evidence::ModelSizes;
using evidence::Part;
using evidence::PrefillCosts;
using evidence::SizesOf;
using evidence::UniformExperts;

constexpr double kReadBytes = 4.64e12;  // a second, one H200
constexpr double kFlops = 8e14;

std::shared_ptr<const model::Manifest> Registered(const std::string& name) {
  const std::filesystem::path folder = TemporaryFolder() / ("bench_" + name);
  WriteSparseCheckpoint(folder, model::FindRegistered(name)->config_json,
                        SparseParts::kLanguage, 1);
  return OpenManifest(folder);
}

const ModelSizes& Flagship() {
  static const ModelSizes sizes =
      SizesOf(*Registered("qwen3.6:35b-a3b"), tensor::DType::kBF16);
  return sizes;
}

void ExpectGigabytes(const Cost& cost, double gigabytes) {
  EXPECT_NEAR(cost.bytes * 1e-9, gigabytes, 0.005);
}

TEST(BenchTraffic, ATokenOfTheFlagshipMovesSixGigabytes) {
  const Costs costs = DecodeCosts(Flagship(), 1, 0, 8);
  ExpectGigabytes(costs[Part::kRoutedExperts], 2.01);
  ExpectGigabytes(costs[Part::kDeltaNet], 2.02);
  ExpectGigabytes(costs[Part::kLmHead], 1.02);
  ExpectGigabytes(costs[Part::kAttention], 0.55);
  ExpectGigabytes(costs[Part::kSharedExpert], 0.25);
  ExpectGigabytes(costs[Part::kRouter], 0.04);
  ExpectGigabytes(costs[Part::kRecurrentState], 0.13);
  ExpectGigabytes(costs.Total(), 6.02);
  EXPECT_NEAR(kReadBytes / costs.Total().bytes, 771, 1);
  // 2.945 G parameters are active for a token.
  EXPECT_NEAR(costs.Total().operations * 1e-9, 2 * 2.945, 0.2);
}

TEST(BenchTraffic, SixtyFourTokensMeetMostExperts) {
  const double experts = UniformExperts(256, 8, 64);
  const Costs costs = DecodeCosts(Flagship(), 64, 0, experts);
  EXPECT_NEAR(costs.Total().bytes * 1e-9, 68, 0.5);
  EXPECT_NEAR(64 * kReadBytes / costs.Total().bytes, 4350, 5);
}

TEST(BenchTraffic, KeysAndValuesGrowWithThePosition) {
  // 20.5 KB a token in bf16.
  const Costs begin = DecodeCosts(Flagship(), 2, 0, 8);
  const Costs later = DecodeCosts(Flagship(), 2, 1000, 8);
  EXPECT_NEAR(later[Part::kKvCache].bytes - begin[Part::kKvCache].bytes,
              2 * 1000 * 20480, 1);
  EXPECT_EQ(later[Part::kRecurrentState].bytes,
            begin[Part::kRecurrentState].bytes);
}

TEST(BenchTraffic, UniformRoutesMeetWhatTheyMustAndNoMore) {
  EXPECT_DOUBLE_EQ(UniformExperts(256, 8, 1), 8);
  EXPECT_NEAR(UniformExperts(256, 8, 8), 57.4, 0.1);
  EXPECT_NEAR(UniformExperts(256, 8, 64), 222, 0.5);
  EXPECT_NEAR(UniformExperts(256, 8, 1e6), 256, 1e-9);
  EXPECT_DOUBLE_EQ(UniformExperts(8, 8, 3), 8);
  EXPECT_EQ(UniformExperts(0, 0, 5), 0);
}

// Under the published floors by what the delta rule computes, which they leave
// out.
TEST(BenchTraffic, PromptsOfTheFlagshipHaveTheFloorsOfTheDesign) {
  const auto rate = [](int64_t tokens) {
    const Costs costs = PrefillCosts(Flagship(), tokens);
    return static_cast<double>(tokens) /
           FloorSeconds(costs, kReadBytes, kFlops);
  };
  EXPECT_NEAR(rate(512) / 32500, 1, 0.03);
  EXPECT_NEAR(rate(2048) / 94000, 1, 0.03);
  EXPECT_NEAR(rate(8192) / 142000, 1, 0.03);
  EXPECT_NEAR(rate(32768) / 104000, 1, 0.03);
}

TEST(BenchTraffic, APromptHasTheLogitsOfOneRow) {
  const Costs one = PrefillCosts(Flagship(), 1);
  const Costs many = PrefillCosts(Flagship(), 100);
  EXPECT_EQ(many[Part::kLmHead].operations, one[Part::kLmHead].operations);
  EXPECT_DOUBLE_EQ(many[Part::kAttention].operations,
                   100 * one[Part::kAttention].operations);
}

// All experts met and all rows of the embedding looked up: the whole model.
TEST(BenchTraffic, EveryWeightBelongsToAPart) {
  for (const std::string name : {"qwen3.6:35b-a3b", "qwen3.6:27b"}) {
    const auto manifest = Registered(name);
    const ModelSizes sizes = SizesOf(*manifest, tensor::DType::kBF16);
    Costs costs =
        DecodeCosts(sizes, manifest->config().vocab, 0,
                    static_cast<double>(manifest->config().num_experts));
    costs[Part::kKvCache] = {};
    costs[Part::kRecurrentState] = {};
    EXPECT_NEAR(costs.Total().bytes,
                static_cast<double>(manifest->language_bytes().value()), 1)
        << name;
  }
}

TEST(BenchTraffic, ADenseModelHasNoExperts) {
  const ModelSizes sizes =
      SizesOf(*Registered("qwen3.6:27b"), tensor::DType::kBF16);
  const Costs costs = DecodeCosts(sizes, 8, 100, 0);
  EXPECT_EQ(costs[Part::kRoutedExperts].bytes, 0);
  EXPECT_EQ(costs[Part::kRouter].bytes, 0);
  EXPECT_GT(costs[Part::kDenseMlp].bytes, 30e9);
}

TEST(BenchTraffic, ATiedHeadIsReadWhole) {
  const auto manifest = OpenManifest(Demo());
  const Costs costs =
      DecodeCosts(SizesOf(*manifest, tensor::DType::kF32), 1, 0, 4);
  EXPECT_EQ(costs[Part::kLmHead].bytes, 4096 * 256 * 2);
  EXPECT_EQ(costs[Part::kEmbedding].bytes, 256 * 2);
}

TEST(BenchTraffic, AFloorIsTheSlowerOfBytesAndOperationsOfEachPart) {
  Costs costs;
  costs[Part::kLmHead] = {.bytes = 100, .operations = 10};
  costs[Part::kRouter] = {.bytes = 10, .operations = 100};
  EXPECT_DOUBLE_EQ(FloorSeconds(costs, 10, 5), 10 + 20);
  EXPECT_DOUBLE_EQ(FloorSeconds(costs, 10, 0), 10 + 1);
  EXPECT_DOUBLE_EQ(FloorSeconds(costs, 0, 0), 0);
}

}  // namespace
}  // namespace signet::testing
