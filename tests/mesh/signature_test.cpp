// Signatures of blocks as they follow from programs (contract F1): of those
// that `lower` makes, and of hand-made tensor-parallel ones.

#include "exec/signature.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "exec/preflight.h"
#include "model/synth.h"
#include "step/draft_testing.h"
#include "support/running_model.h"
#include "support/temporary_folder.h"
#include "support/tiny_checkpoint.h"

namespace signet::testing {
namespace {

namespace fs = std::filesystem;
using exec::BlockSignature;
using exec::SignedBlock;
using topology::Axis;
using Plan = std::shared_ptr<const plan::ModelPlan>;

plan::PlanOptions Options() {
  return {.context = 64, .batch = 1, .prefill_chunks = {16}};
}

// moe_awkward with K experts a token.
fs::path Awkward(int top_k) {
  const fs::path folder =
      TemporaryFolder() / ("signature_" + std::to_string(top_k));
  if (fs::exists(folder)) return folder;
  nlohmann::json config =
      nlohmann::json::parse(TinyCheckpointConfig("moe_awkward"));
  config["num_experts_per_tok"] = top_k;
  const fs::path path = folder.string() + ".json";
  std::ofstream(path) << config.dump();
  ValueOrDie(model::Synthesize({.config = path.string(), .folder = folder}));
  return folder;
}

Plan AwkwardPlan(int top_k, const char* mesh) {
  return ValueOrDie(plan::MakeModelPlan(OpenManifest(Awkward(top_k)),
                                        CpuMesh(mesh), Options()));
}

TEST(Signature, F1_FollowsFromTheProgramOfARoutedBlock) {
  const Plan plan = AwkwardPlan(3, "ep=2");
  const std::vector<step::SealedProgram> programs = SealAll(*plan, Rank(1));
  ASSERT_EQ(programs.size(), 2u);
  for (const step::SealedProgram& program : programs) {
    const bool decode = program.shape().kind == plan::ShapeKind::kDecode;
    const std::vector<SignedBlock> blocks = exec::SignaturesOf(program, *plan);
    ASSERT_EQ(blocks.size(), 4u);  // one a layer
    const BlockSignature& s = blocks[2].signature;
    EXPECT_EQ(s.contract, plan->contract_id());
    EXPECT_EQ(s.block, "routed_experts");
    EXPECT_EQ(s.layer, 2);
    EXPECT_EQ(s.grammar, decode ? "moe_route indexed_moe_gemv moe_activation "
                                  "indexed_moe_gemv moe_combine"
                                : "moe_route moe_scatter grouped_moe_gemm "
                                  "moe_gate_up_unscatter moe_activation "
                                  "grouped_moe_gemm moe_combine");
    EXPECT_EQ(s.router, "softmax_topk");
    EXPECT_EQ(s.top_k, 3);
    EXPECT_EQ(s.renormalise, 1);
    EXPECT_EQ(s.num_experts, 12);
    EXPECT_EQ(s.local_experts, 6);
    EXPECT_EQ(s.hidden, 96);
    EXPECT_EQ(s.width, 44);
    EXPECT_EQ(s.local_width, 44);
    EXPECT_EQ(s.rows, decode ? 1 : 16);
    EXPECT_EQ(s.tile_rows, decode ? 0 : 8);
    EXPECT_EQ(s.lanes, 4);
    EXPECT_EQ(s.local_lanes, 2);
    EXPECT_EQ(s.activation, "moe_activation");
    EXPECT_EQ(s.parallelism, "owned");
    EXPECT_EQ(s.backend, "cpu");
    EXPECT_EQ(s.architecture, plan->mesh().device(Rank(1)).architecture);
    EXPECT_NE(s.partition, Digest());
    EXPECT_NE(s.formats.find("gate_up=bf16"), std::string::npos) << s.formats;
    EXPECT_NE(s.formats.find("down=bf16"), std::string::npos) << s.formats;
    EXPECT_NE(s.bases.find("down=natural"), std::string::npos) << s.bases;
    EXPECT_NE(s.dtypes.find("ids=i32"), std::string::npos) << s.dtypes;
    EXPECT_EQ(s.attributes.find("first_lane"), std::string::npos);
  }
}

TEST(Signature, F1_TheMeshOfOneHasNothingToAgreeOn) {
  const Plan plan = AwkwardPlan(3, "single");
  for (const step::SealedProgram& program : SealAll(*plan)) {
    EXPECT_TRUE(exec::SignaturesOf(program, *plan).empty());
    EXPECT_TRUE(exec::MeetingsOf(program).empty());
  }
}

TEST(Signature, F1_ARankLoweredWithAnotherKIsRefused) {
  const Plan plan = AwkwardPlan(3, "ep=2");
  const Plan other = AwkwardPlan(2, "ep=2");
  const auto first = SealAll(*plan, Rank(0));
  const auto second = SealAll(*other, Rank(1));
  const auto checked = exec::Preflight(*plan, {first, second});
  ASSERT_FALSE(checked.has_value());
  const auto& rejections = std::get<Rejections>(checked.error());
  EXPECT_TRUE(rejections.Has(RejectionCode::kProgramHeaderMismatch));
  EXPECT_TRUE(rejections.Has(RejectionCode::kEpochStale));
}

// Of one mesh, so that the groups are right and the signature alone tells.
TEST(Signature, F1_AnotherKIsNamed) {
  const Plan plan = AwkwardPlan(3, "ep=2");
  const Plan other = ValueOrDie(
      plan::MakeModelPlan(OpenManifest(Awkward(2)), plan->mesh(), Options()));
  const auto first = SealAll(*plan, Rank(0));
  const auto second = SealAll(*other, Rank(1));
  const auto checked = exec::Preflight(*plan, {first, second});
  ASSERT_FALSE(checked.has_value());
  const std::string text = Describe(checked.error());
  EXPECT_NE(text.find("signature_mismatch: the K of a block is not that of "
                      "rank 0 (rank 1, decode of 1 rows, step "),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("the contract id of a block"), std::string::npos);
}

// A tensor-parallel mixer: row products, attention over the rank's heads, a
// column product whose sum is reduced; then the head's gather.
class TensorParallel : public ::testing::Test {
 protected:
  static constexpr Axis kTp = Axis::kTp;
  TensorParallel() : plan_(AwkwardPlan(3, "single")) {
    const model::Manifest& manifest = plan_->manifest();
    const auto weight = [&](const char* name, model::Role role,
                            std::optional<LayerId> layer, tensor::Shape shape) {
      const WeightId id = *manifest.Find(role, layer);
      const BufferId buffer = b_.Weight(name, step::Part::Shard(kTp));
      b_.draft.buffers[buffer].weight->weight = id;
      b_.draft.buffers[buffer].dtype = tensor::DType::kBF16;
      b_.draft.buffers[buffer].shape = shape;
      return buffer;
    };
    const step::GroupRef group = {kTp, {Rank(0), Rank(1)}, 1};
    const BufferId x = b_.Input("x");
    const auto shard = [&](const char* name) {
      return b_.Work(name, step::Part::Shard(kTp));
    };
    const BufferId q = shard("q");
    const BufferId attended = shard("attended");
    const LayerId layer(3);
    b_.Add(step::Projection{
        .x = x,
        .weight = weight("wq", model::Role::kQProj, layer, {72, 96}),
        .out = q});
    b_.Add(step::Norm{.x = x, .weight = x, .out = b_.Work("elsewhere")});
    b_.Add(step::Attention{.q = q,
                           .q_gate = q,
                           .k_cache = q,
                           .v_cache = q,
                           .slot = x,
                           .position = x,
                           .page_table = x,
                           .out = attended,
                           .heads = 3,
                           .kv_heads = 1,
                           .head_dim = 24});
    const BufferId addend = b_.Work("addend", step::Part::Partial(kTp));
    b_.Add(step::Projection{
        .x = attended,
        .weight = weight("wo", model::Role::kOProj, layer, {96, 72}),
        .out = addend});
    b_.Add(step::AllReduce{.x = addend,
                           .out = b_.Work("sum"),
                           .group = group,
                           .row = ScheduleRow(0),
                           .elements = 32});
    const BufferId part = shard("logits_part");
    b_.Add(step::Logits{
        .x = x,
        .weight = weight("head", model::Role::kLmHead, std::nullopt, {151, 96}),
        .out = part});
    const BufferId logits = b_.Work("logits");
    b_.draft.buffers[logits].shape = {2, 301};
    b_.Add(step::Gather{
        .x = part, .out = logits, .group = group, .row = ScheduleRow(1)});
  }

  std::vector<SignedBlock> Blocks() const {
    return exec::SignaturesOf(exec::ProgramParts(b_.draft), *plan_);
  }

  Plan plan_;
  step::testing::DraftBuilder b_;
};

TEST_F(TensorParallel, F1_TheMixerAndTheHeadHaveSignatures) {
  const std::vector<SignedBlock> blocks = Blocks();
  ASSERT_EQ(blocks.size(), 2u);
  const BlockSignature& mixer = blocks[0].signature;
  EXPECT_EQ(mixer.block, "mixer");
  EXPECT_EQ(mixer.grammar, "projection attention projection");
  EXPECT_EQ(mixer.attributes, " heads=3 kv_heads=1 head_dim=24");
  EXPECT_EQ(mixer.formats, "q_proj=bf16 o_proj=bf16");
  EXPECT_EQ(mixer.bases, "q_proj=natural o_proj=natural");
  EXPECT_EQ(mixer.width, 144);
  EXPECT_EQ(mixer.local_width, 72);
  const BlockSignature& head = blocks[1].signature;
  EXPECT_EQ(head.block, "lm_head");
  EXPECT_EQ(head.grammar, "logits");
  EXPECT_EQ(head.width, 301);
  EXPECT_EQ(head.local_width, 151);
}

TEST_F(TensorParallel, F1_TheShorterLastBlockOfTheHeadIsNoDifference) {
  const std::vector<SignedBlock> before = Blocks();
  b_.draft.buffers[step::testing::Nth<step::Logits>(b_.draft).weight].shape = {
      150, 96};
  EXPECT_EQ(exec::ToText(Blocks()[1].signature),
            exec::ToText(before[1].signature));
}

TEST_F(TensorParallel, F1_OtherHeadsOrFormatsAreADifference) {
  const std::string before = exec::ToText(Blocks()[0].signature);
  auto& attention = step::testing::Nth<step::Attention>(b_.draft);
  attention.heads = 2;
  EXPECT_NE(exec::ToText(Blocks()[0].signature), before);
  attention.heads = 3;
  EXPECT_EQ(exec::ToText(Blocks()[0].signature), before);
  b_.draft.buffers[step::testing::Nth<step::Projection>(b_.draft, 1).weight]
      .dtype = tensor::DType::kF32;
  EXPECT_NE(exec::ToText(Blocks()[0].signature), before);
}

}  // namespace
}  // namespace signet::testing
