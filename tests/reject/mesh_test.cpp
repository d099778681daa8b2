// Refusals of programs for meshes: what tp cuts, what pp moves, and the one
// rank that draws the token.

#include <gtest/gtest.h>

#include "lower/lower.h"
#include "model/checkpoint_testing.h"
#include "plan/weight_plan.h"
#include "step/operands.h"
#include "tests/reject/one_edit.h"

namespace signet::testing {
namespace {

using D = step::ProgramDraft;
using step::Part;
using topology::Axis;

constexpr RejectionCode kRole = RejectionCode::kOperandRole;
constexpr RejectionCode kShape = RejectionCode::kOperandShape;
constexpr RejectionCode kMisread = RejectionCode::kShardMisread;
constexpr RejectionCode kAttribute = RejectionCode::kStepAttribute;
constexpr RejectionCode kRecipe = RejectionCode::kWeightRecipe;
constexpr RejectionCode kMissing = RejectionCode::kCollectiveMissing;
constexpr RejectionCode kUnscheduled = RejectionCode::kCollectiveUnscheduled;
constexpr RejectionCode kGroup = RejectionCode::kGroupMismatch;

// One more work buffer of `like`'s type behind the workspace.
BufferId Spare(D& d, std::string_view like) {
  step::BufferDecl spare = Buffer(d, like);
  spare.name = "spare";
  spare.kind = step::BufferKind::kWork;
  spare.io.reset();
  spare.arena = MemoryClass::kWorkspace;
  Bytes& size = d.arena_bytes[MemoryClass::kWorkspace];
  spare.offset_bytes = size.AlignUp(64).value();
  size = Bytes(spare.offset_bytes) + spare.size;
  return d.buffers.Push(spare);
}

const OneEdit kEdits[] = {
    {"P3b_AWeightKeptAtFullWidth",
     Sample::kSplit,
     [](D& d) {
       // Heads of four, in place of the rank's two.
       Buffer(d, "w.1.q_proj").shape = {64, 8};
     },
     {kShape}},
    {"P3b_AShardCalledWhole",
     Sample::kSplit,
     [](D& d) { Buffer(d, "w.1.q_proj").part = Part::Whole(); },
     {kMisread}},
    {"P3b_AWholeCalledAShard",
     Sample::kSplit,
     [](D& d) { Buffer(d, "w.0.router").part = Part::Shard(Axis::kTp); },
     {kMisread}},
    {"P3b_TheShardOfAnotherWeight",
     Sample::kSplit,
     [](D& d) {
       std::swap(Buffer(d, "w.1.k_proj").offset_bytes,
                 Buffer(d, "w.1.v_proj").offset_bytes);
     },
     {kRole}},
    {"P3b_AShardReadWhereItsFileIsMapped",
     Sample::kSplit,
     [](D& d) {
       Buffer(d, "w.1.k_proj").arena = MemoryClass::kMapped;
       Buffer(d, "w.1.k_proj").offset_bytes = 0;
     },
     {kRole}},
    {"P3_TheExpertsOfAnotherLayersPlace",
     Sample::kSplit,
     [](D& d) {
       std::swap(Buffer(d, "w.0.experts.down").offset_bytes,
                 Buffer(d, "w.1.experts.down").offset_bytes);
     },
     {kRole}},
    {"S3_AddendsOfTheMixerUsedBeforeTheirSum",
     Sample::kSplit,
     [](D& d) { Nth<step::ResidualAdd>(d).addend = IdOf(d, "l0.mixed"); },
     {RejectionCode::kPartialUnreduced}},
    {"S3_TheSharedExpertAddedToASum",
     Sample::kSplit,
     [](D& d) {
       // Its addends would enter on every rank what the ranks have summed.
       auto& add = Nth<step::GatedAdd>(d);
       auto& reduce = Nth<step::AllReduce>(d, 1);
       const BufferId routed = add.addend;
       const size_t at = IndexOf(d, "gated_add");
       add.addend = reduce.out;
       reduce.x = routed;
       Nth<step::ResidualAdd>(d, 1).addend = add.out;
       std::swap(d.steps[at], d.steps[at + 1]);
     },
     {RejectionCode::kPartialUnreduced, RejectionCode::kWholeInReducedRange}},
    {"S3_AHeadsShardReadAsWhole",
     Sample::kSplit,
     [](D& d) { Buffer(d, "l0.o_normed").part = Part::Whole(); },
     {kMisread}},
    {"S1_ATensorParallelMixerWithoutItsReduction",
     Sample::kSplit,
     [](D& d) {
       const BufferId mixed = IdOf(d, "l0.mixed");
       Erase(d, IndexOf(d, "all_reduce"));
       Nth<step::ResidualAdd>(d).addend = mixed;
     },
     {kMissing}},
    {"S1_TheLogitsNeverGathered",
     Sample::kDraws,
     [](D& d) { Erase(d, IndexOf(d, "gather")); },
     {kMissing}},
    {"S3_LogitsOfOneRankSampled",
     Sample::kDraws,
     [](D& d) {
       auto& sample = Nth<step::Sample>(d);
       sample.logits = IdOf(d, "logits.block");
     },
     {kShape}},
    {"X7_EveryRankDraws",
     Sample::kSplit,
     [](D& d) {
       auto& broadcast = Nth<step::Broadcast>(d);
       broadcast.x = Spare(d, "io.sampled");
     },
     {kAttribute}},
    {"X7_ARootThatDoesNotDraw",
     Sample::kDraws,
     [](D& d) {
       auto& broadcast = Nth<step::Broadcast>(d);
       broadcast.root = Rank(1);
       broadcast.x.reset();
     },
     {kAttribute}},
    {"X7_TheRootSendsNothing",
     Sample::kDraws,
     [](D& d) { Nth<step::Broadcast>(d).x.reset(); },
     {kAttribute}},
    {"S1_TheTokenNeverBroadcast",
     Sample::kFirstStage,
     [](D& d) { Erase(d, IndexOf(d, "broadcast")); },
     {kMissing}},
    {"S1_TheResidualNeverSent",
     Sample::kFirstStage,
     [](D& d) { Erase(d, IndexOf(d, "band_transfer")); },
     {kMissing}},
    {"S1_AnotherStagesRow",
     Sample::kFirstStage,
     [](D& d) {
       // The reduction of the second stage's experts.
       Nth<step::AllReduce>(d).row = Nth<step::BandTransfer>(d).row.value() == 1
                                         ? ScheduleRow(2)
                                         : ScheduleRow(1);
     },
     {kUnscheduled, kMissing}},
    {"S1_ARowMoreOfAnotherStage",
     Sample::kFirstStage,
     [](D& d) {
       auto reduce = Nth<step::AllReduce>(d);
       reduce.row = ScheduleRow(2);  // in order, behind the transfer
       reduce.out = Spare(d, "l0.middle");
       d.steps.insert(
           d.steps.begin() +
               static_cast<std::ptrdiff_t>(IndexOf(d, "band_transfer")) + 1,
           reduce);
     },
     {kUnscheduled}},
    {"S2_TheResidualOfAnEarlierPointSent",
     Sample::kFirstStage,
     [](D& d) { Nth<step::BandTransfer>(d).x = IdOf(d, "l0.middle"); },
     {kRecipe}},
    {"S2_ASourceThatAlsoReceives",
     Sample::kFirstStage,
     [](D& d) {
       const BufferId spare = Spare(d, "l0.middle");
       Nth<step::BandTransfer>(d).out = spare;
     },
     {kAttribute}},
    {"S2_ATargetThatReceivesNothing",
     Sample::kLastStage,
     [](D& d) {
       auto& transfer = Nth<step::BandTransfer>(d);
       transfer.x = transfer.out;
       transfer.out.reset();
     },
     {kAttribute}},
    {"S6_ATransferBetweenOtherRanks",
     Sample::kLastStage,
     [](D& d) { Nth<step::BandTransfer>(d).group.ranks = {Rank(0), Rank(2)}; },
     {kGroup}},
    {"S2_AWeightOfAnotherStage",
     Sample::kLastStage,
     [](D& d) {
       Buffer(d, "w.1.input_layernorm").weight->weight =
           PlanOf(Sample::kLastStage)
               .manifest()
               .Find(model::Role::kInputNorm, LayerId(0));
     },
     {kRecipe}},
};

class MeshEdit : public ::testing::TestWithParam<OneEdit> {};

TEST_P(MeshEdit, IsRefused) {
  const OneEdit& edit = GetParam();
  D draft = DraftOf(edit.sample);
  edit.apply(draft);
  const Codes codes = SealCodes(std::move(draft), PlanOf(edit.sample));
  EXPECT_EQ(codes, edit.codes) << Spell(codes);
}

INSTANTIATE_TEST_SUITE_P(Reject, MeshEdit, ::testing::ValuesIn(kEdits),
                         [](const auto& edit) {
                           return std::string(edit.param.name);
                         });

// Slices of two experts, three columns wide: 192 and 96 bytes a layer.
TEST(MeshPlan, P4_ExpertsOfAnySizeLieAligned) {
  nlohmann::json config = model::testing::TinyConfig(model::Family::kQwen35Moe);
  config["shared_expert_intermediate_size"] = 6;
  config["num_experts"] = 2;
  const auto plan = MakePlan(config, {.context = 64}, "tp=2");
  for (int r = 0; r < 2; ++r) {
    const auto codes = SealCodes(
        *lower::LowerModel(*plan, plan->shapes().front(), Rank(r)), *plan);
    EXPECT_EQ(codes, Codes{}) << Spell(codes);
    // What is counted as experts is their bytes, not what lies between them.
    EXPECT_EQ(plan->experts().ExpertBytes(Rank(r)), Bytes(2 * (192 + 96)));
  }
}

TEST(MeshPlan, P3b_TheShardsOfAWeightTileIt) {
  const plan::ModelPlan& plan = PlanOf(Sample::kSplit);
  const auto& weights = plan.manifest().weights();
  int cut = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    const WeightId id(static_cast<int32_t>(i));
    const plan::WeightShard& first = plan.weights().shard(id, Rank(0));
    const plan::WeightShard& second = plan.weights().shard(id, Rank(1));
    ASSERT_EQ(first.cut, second.cut);
    if (!first.cut) {
      EXPECT_EQ(first.shape, weights[id].shape);
      continue;
    }
    ++cut;
    EXPECT_EQ(first.shape.NumElements() + second.shape.NumElements(),
              weights[id].shape.NumElements())
        << weights[id].name;
  }
  EXPECT_GT(cut, 15);
}

TEST(MeshPlan, P3b_QueriesKeysAndValuesAreCutEachByHeads) {
  const plan::ModelPlan& plan = PlanOf(Sample::kSplit);
  const WeightId id =
      *plan.manifest().Find(model::Role::kInProjQkv, LayerId(0));
  // Two key heads of 4, then 4 value heads of 6.
  const auto blocks = [&](int rank) {
    std::vector<std::pair<int64_t, int64_t>> rows;
    for (const plan::Block& block :
         plan.weights().shard(id, Rank(rank)).row_blocks) {
      rows.emplace_back(block.first, block.size);
    }
    return rows;
  };
  using Rows = std::vector<std::pair<int64_t, int64_t>>;
  EXPECT_EQ(blocks(0), (Rows{{0, 4}, {8, 4}, {16, 12}}));
  EXPECT_EQ(blocks(1), (Rows{{4, 4}, {12, 4}, {28, 12}}));
}

TEST(MeshPlan, P3b_TheLastVocabularyBlockIsShorter) {
  const plan::ModelPlan& plan = PlanOf(Sample::kSplit);
  EXPECT_EQ(plan.dims(Rank(0)).vocab, 6);
  EXPECT_EQ(plan.dims(Rank(1)).first_vocab, 6);
  EXPECT_EQ(plan.dims(Rank(1)).vocab, 5);
}

TEST(MeshPlan, W5_OneRowACollectiveThatLowerEmits) {
  const auto uses = [](Sample sample) {
    std::vector<std::string_view> names;
    for (const plan::CollectiveRow& row : PlanOf(sample).schedule().rows()) {
      names.push_back(plan::Name(row.use));
    }
    return names;
  };
  using Names = std::vector<std::string_view>;
  EXPECT_EQ(uses(Sample::kIndexed),
            (Names{"routed experts", "routed experts"}));
  EXPECT_EQ(uses(Sample::kDense), Names{});
  EXPECT_EQ(uses(Sample::kSplit),
            (Names{"mixer", "routed experts", "mixer", "routed experts",
                   "logits", "token along tp"}));
  EXPECT_EQ(uses(Sample::kFirstStage),
            (Names{"routed experts", "residual", "routed experts",
                   "token along pp"}));
}

}  // namespace
}  // namespace signet::testing
