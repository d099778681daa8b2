// What a tp axis cuts, on the smallest checkpoints: every part that it does not
// divide is refused by its own name, and what it divides has the bytes of the
// shard.

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "model/checkpoint_testing.h"
#include "plan/layouter.h"
#include "plan/weight_plan.h"
#include "support/running_model.h"

namespace signet::testing {
namespace {

using model::Family;
using model::testing::TinyConfig;
using Plan = std::shared_ptr<const plan::ModelPlan>;

Result<Plan> Make(const nlohmann::json& config, std::string_view mesh,
                  plan::TpExperts experts = plan::TpExperts::kSplit) {
  const model::testing::TempFolder folder;
  auto checkpoint = std::make_shared<const model::Checkpoint>(
      ValueOrDie(model::testing::WriteAndOpen(
          folder, config, model::testing::TensorsOf(config))));
  plan::PlanOptions options = {.context = 16};
  options.tp_experts = experts;
  return plan::MakeModelPlan(ValueOrDie(model::BuildManifest(checkpoint)),
                             CpuMesh(mesh), options);
}

bool Names(const Result<Plan>& plan, std::string_view what) {
  return !plan.has_value() &&
         Describe(plan.error()).find(what) != std::string::npos;
}

// Four of every head; four ranks divide all of it.
nlohmann::json FourWays() {
  nlohmann::json config = TinyConfig(Family::kQwen35Moe);
  config["num_key_value_heads"] = 4;
  config["linear_num_key_heads"] = 4;
  config["moe_intermediate_size"] = 8;
  config["shared_expert_intermediate_size"] = 8;
  return config;
}

TEST(Admission, P3b_EachPartThatTpCutsIsRefusedByName) {
  const Result<Plan> moe = Make(TinyConfig(Family::kQwen35Moe), "tp=3");
  for (const char* part : {"query heads", "kv heads", "linear key heads",
                           "shared expert's width"}) {
    EXPECT_TRUE(Names(moe, std::string("does not divide the ") + part)) << part;
  }
  nlohmann::json dense = TinyConfig(Family::kQwen35);
  dense["intermediate_size"] = 13;
  EXPECT_TRUE(Names(Make(dense, "tp=2"), "does not divide the dense width"));
}

TEST(Admission, P3b_ARankWithoutVocabularyRowsIsRefused) {
  nlohmann::json config = FourWays();
  config["vocab_size"] = 10;  // 3, 3, 3 and 1
  EXPECT_TRUE(Make(config, "tp=4").has_value());
  config["vocab_size"] = 9;
  EXPECT_TRUE(Names(Make(config, "tp=4"), "without vocabulary rows"));
}

TEST(Admission, P3_AnExpertWidthThatTpDoesNotDivideIsRefused) {
  nlohmann::json config = FourWays();
  config["moe_intermediate_size"] = 6;
  EXPECT_TRUE(Names(Make(config, "tp=4"),
                    "an expert width of 6 cannot be split evenly over tp"));
  EXPECT_TRUE(Make(config, "tp=4", plan::TpExperts::kOwned).has_value());
}

TEST(Admission, P3b_ARankHoldsTheBytesOfItsShards) {
  const Plan plan = ValueOrDie(Make(FourWays(), "tp=4"));
  const auto& weights = plan->manifest().weights();
  for (int r = 0; r < 4; ++r) {
    Bytes end;
    for (size_t i = 0; i < weights.size(); ++i) {
      const WeightId id(static_cast<int32_t>(i));
      const plan::WeightShard& shard = plan->weights().shard(id, Rank(r));
      if (!shard.cut) continue;
      EXPECT_EQ(Bytes(shard.offset_bytes), end.AlignUp(plan::kBufferAlignment))
          << weights[id].name;
      end = Bytes(shard.offset_bytes) +
            shard.shape.StorageBytes(weights[id].dtype);
    }
    EXPECT_GT(end, Bytes());
    EXPECT_EQ(plan->weights().dense_bytes(Rank(r)), end);
  }
}

}  // namespace
}  // namespace signet::testing
