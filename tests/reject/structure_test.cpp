// S1, G3, G4: the structure rules, one broken thing at a time.

#include <gtest/gtest.h>

#include <optional>

#include "tests/reject/one_edit.h"

namespace signet::testing {
namespace {

using step::BufferDecl;
using step::BufferKind;
using step::IoRole;
using step::ProgramDraft;
using topology::Axis;

TEST(Structure, EverySampleSeals) {
  for (const Sample sample : kEverySample) {
    const auto sealed = step::Seal(DraftOf(sample), PlanOf(sample));
    ASSERT_TRUE(sealed.has_value()) << Name(sample) << "\n"
                                    << Describe(sealed.error());
  }
}

class StructureEdit : public ::testing::TestWithParam<OneEdit> {};

TEST_P(StructureEdit, IsRefused) {
  const OneEdit& edit = GetParam();
  ProgramDraft draft = DraftOf(edit.sample);
  edit.apply(draft);
  const Codes codes = SealCodes(std::move(draft), PlanOf(edit.sample));
  EXPECT_EQ(codes, edit.codes) << Spell(codes);
}

using D = ProgramDraft;
constexpr RejectionCode kHeader = RejectionCode::kProgramHeaderMismatch;
constexpr RejectionCode kUnknown = RejectionCode::kBufferUnknown;
constexpr RejectionCode kRole = RejectionCode::kOperandRole;
constexpr RejectionCode kGrammar = RejectionCode::kGrammarBroken;
constexpr RejectionCode kLink = RejectionCode::kRouteLinkBroken;
constexpr RejectionCode kUnscheduled = RejectionCode::kCollectiveUnscheduled;
constexpr RejectionCode kMissing = RejectionCode::kCollectiveMissing;

// One more buffer, behind the others of its arena; no step uses it.
void Spare(D& d, BufferKind kind, MemoryClass arena, std::optional<IoRole> io) {
  Bytes& size = d.arena_bytes[arena];
  BufferDecl spare{.name = "spare", .kind = kind, .shape = {16}};
  spare.arena = arena;
  spare.offset_bytes = size.AlignUp(64).value();
  spare.size = Bytes(64);
  spare.io = io;
  size = Bytes(spare.offset_bytes) + spare.size;
  d.buffers.Push(spare);
}

const OneEdit kEdits[] = {
    {"S1_ProgramEmpty",
     Sample::kIndexed,
     [](D& d) { d.steps.clear(); },
     {RejectionCode::kProgramEmpty}},
    {"S1_ContractOfAnotherPlan",
     Sample::kIndexed,
     [](D& d) { d.contract = Digest(1, 2); },
     {kHeader}},
    {"S1_RankOutsideTheMesh",
     Sample::kIndexed,
     [](D& d) { d.rank = Rank(1); },
     {kHeader}},
    {"S1_NegativeRank",
     Sample::kBlock,
     [](D& d) { d.rank = Rank(-1); },
     {kHeader}},
    {"S1_ShapeOfNoPlan",
     Sample::kIndexed,
     [](D& d) { d.shape.rows = 2; },
     {kHeader}},
    {"S1_LogitsOfNoPlan",
     Sample::kGrouped,
     [](D& d) { d.shape.logits = plan::LogitsOf::kEveryRow; },
     {kHeader}},
    {"S1_NoRows", Sample::kBlock, [](D& d) { d.shape.rows = 0; }, {kHeader}},
    {"S1_TooManyRows",
     Sample::kBlock,
     [](D& d) { d.shape.rows = int64_t{1} << 60; },
     {kHeader}},
    {"S1_LayerWithoutExperts",
     Sample::kBlock,
     [](D& d) { d.recipe.layer = LayerId(2); },
     {kHeader}},
    {"S1_BlockWithoutLayer",
     Sample::kBlock,
     [](D& d) { d.recipe.layer.reset(); },
     {kHeader}},
    {"S1_ModelWithLayer",
     Sample::kIndexed,
     [](D& d) { d.recipe.layer = LayerId(0); },
     {kHeader}},
    {"S1_OperandOutsideTheProgram",
     Sample::kIndexed,
     [](D& d) { Nth<step::Norm>(d).x = BufferId(9999); },
     {kUnknown}},
    {"S1_OperandLeftOut",
     Sample::kIndexed,
     [](D& d) { Nth<step::Norm>(d).out = step::kNoBuffer; },
     {kUnknown}},
    {"S1_LiveRowsLeftOut",
     Sample::kIndexed,
     [](D& d) { d.live = step::kNoBuffer; },
     {kUnknown}},
    {"S1_NameTwice",
     Sample::kIndexed,
     [](D& d) { Buffer(d, "l1.x").name = "l0.x"; },
     {kUnknown}},
    {"S1_NameOfOtherCharacters",
     Sample::kIndexed,
     [](D& d) { Buffer(d, "l1.x").name = "l1 x"; },
     {kUnknown}},
    {"S1_NameEmpty",
     Sample::kIndexed,
     [](D& d) { Buffer(d, "l1.x").name.clear(); },
     {kUnknown}},
    {"S1_WeightThatNamesNone",
     Sample::kIndexed,
     [](D& d) { Buffer(d, "w.0.router").weight.reset(); },
     {kRole}},
    {"S1_WeightOutsideTheManifest",
     Sample::kIndexed,
     [](D& d) { Buffer(d, "w.0.router").weight->weight = WeightId(999); },
     {kRole}},
    {"S1_WeightThatNamesExpertsToo",
     Sample::kIndexed,
     [](D& d) { Buffer(d, "w.0.router").weight->expert_layer = LayerId(0); },
     {kRole}},
    {"S1_ExpertsOfNoLayer",
     Sample::kIndexed,
     [](D& d) {
       Buffer(d, "w.0.experts.down").weight->expert_layer = LayerId(5);
     },
     {kRole}},
    {"S1_WorkThatNamesAWeight",
     Sample::kIndexed,
     [](D& d) { Buffer(d, "l0.x").weight.emplace(); },
     {kRole}},
    {"S1_WorkInTheStateArena",
     Sample::kIndexed,
     [](D& d) { Buffer(d, "l0.x").arena = MemoryClass::kKv; },
     {kRole}},
    {"S1_StateInTheWorkspace",
     Sample::kIndexed,
     [](D& d) { Buffer(d, "l1.k_cache").arena = MemoryClass::kWorkspace; },
     {kRole}},
    {"S1_OutputOutsideTheIoArena",
     Sample::kIndexed,
     [](D& d) { Buffer(d, "io.sampled").arena = MemoryClass::kWorkspace; },
     {kRole}},
    {"S1_RoleOfAnotherKind",
     Sample::kIndexed,
     [](D& d) {
       Spare(d, BufferKind::kConstant, MemoryClass::kTables, IoRole::kRouteIds);
     },
     {kRole}},
    {"S1_InputWithoutRole",
     Sample::kIndexed,
     [](D& d) { Spare(d, BufferKind::kInput, MemoryClass::kIo, std::nullopt); },
     {kRole}},
    {"S1_RoleHeldTwice",
     Sample::kIndexed,
     [](D& d) {
       Spare(d, BufferKind::kInput, MemoryClass::kIo, IoRole::kSlot);
     },
     {kRole}},

    {"G3_ProgramEndsWithinABlock",
     Sample::kBlock,
     [](D& d) { d.steps.resize(IndexOf(d, "moe_combine")); },
     {kGrammar}},
    {"G3_RoutesTwice",
     Sample::kBlock,
     [](D& d) {
       d.steps.insert(d.steps.begin(), d.steps[IndexOf(d, "moe_route")]);
     },
     {kGrammar}},
    {"G3_BlockTwice",
     Sample::kPrecomputedBlock,
     [](D& d) {
       const std::vector<step::Step> once = d.steps;
       d.steps.insert(d.steps.end(), once.begin(), once.end());
     },
     {kGrammar}},
    {"G3_GrammarsMixed",
     Sample::kGrouped,
     [](D& d) {
       d.steps[IndexOf(d, "grouped_moe_gemm", 1)] =
           step::IndexedMoeGemv{.experts = IdOf(d, "w.0.experts.down"),
                                .ids = IdOf(d, "l0.moe.ids"),
                                .x = IdOf(d, "l0.moe.act"),
                                .out = IdOf(d, "l0.moe.d"),
                                .which = step::ExpertPart::kDown};
     },
     {kGrammar}},
    {"G3_DownBeforeGateUp",
     Sample::kIndexed,
     [](D& d) { Nth<step::IndexedMoeGemv>(d).which = step::ExpertPart::kDown; },
     {kGrammar}},
    {"G3_BlocksOutOfLayerOrder",
     Sample::kIndexed,
     [](D& d) {
       for (const char* part : {"gate_up", "down"}) {
         const std::string tail = std::string(".experts.") + part;
         std::swap(Buffer(d, "w.0" + tail).weight,
                   Buffer(d, "w.1" + tail).weight);
       }
     },
     {kGrammar}},
    {"G3_BlockOfAnotherLayer",
     Sample::kBlock,
     [](D& d) { d.recipe.layer = LayerId(0); },
     {kGrammar}},
    {"G3_ModelWithOneBlockOnly",
     Sample::kBlock,
     [](D& d) {
       d.recipe = {};
       d.shape = PlanOf(Sample::kBlock).shapes().front();
     },
     {kGrammar}},
    {"G2_RouterOfAnotherRecipe",
     Sample::kPrecomputedBlock,
     [](D& d) { d.recipe.router = step::RouterKind::kSoftmaxTopK; },
     {kGrammar}},

    {"G2_SoftmaxWithGivenRoutes",
     Sample::kBlock,
     [](D& d) {
       auto& route = Nth<step::MoeRoute>(d);
       route.in_ids = route.ids;
     },
     {kLink}},
    {"G2_SoftmaxWithoutScores",
     Sample::kBlock,
     [](D& d) { Nth<step::MoeRoute>(d).scores.reset(); },
     {kLink}},
    {"G2_PrecomputedWithoutWeights",
     Sample::kPrecomputedBlock,
     [](D& d) { Nth<step::MoeRoute>(d).in_weights.reset(); },
     {kLink}},
    {"G2_PrecomputedWithScores",
     Sample::kPrecomputedBlock,
     [](D& d) {
       auto& route = Nth<step::MoeRoute>(d);
       route.scores = route.weights;
     },
     {kLink}},
    {"G4_IndexedGateUpWithoutUp",
     Sample::kIndexed,
     [](D& d) { Nth<step::IndexedMoeGemv>(d).up.reset(); },
     {kLink}},
    {"G4_IndexedDownWithUp",
     Sample::kIndexed,
     [](D& d) {
       auto& down = Nth<step::IndexedMoeGemv>(d, 1);
       down.up = down.out;
     },
     {kLink}},
    {"G4_IndexedCombineWithPermutation",
     Sample::kIndexed,
     [](D& d) {
       Nth<step::MoeCombine>(d).inverse_perm = IdOf(d, "l0.moe.ids");
     },
     {kLink}},
    {"G4_GroupedCombineWithoutPermutation",
     Sample::kGrouped,
     [](D& d) { Nth<step::MoeCombine>(d).inverse_perm.reset(); },
     {kLink}},
    {"G4_DownOfAnotherLayer",
     Sample::kIndexed,
     [](D& d) {
       const BufferId other = IdOf(d, "w.1.experts.down");
       Nth<step::IndexedMoeGemv>(d, 1).experts = other;
       Nth<step::MoeCombine>(d).experts = other;
     },
     {kLink}},
    {"G4_GateUpReadsDown",
     Sample::kIndexed,
     [](D& d) {
       Nth<step::IndexedMoeGemv>(d).experts = IdOf(d, "w.0.experts.down");
     },
     {kLink}},
    {"G4_ReductionOfAnotherBlock",
     Sample::kIndexed,
     [](D& d) { Nth<step::AllReduce>(d, 1).x = IdOf(d, "l0.moe.partial"); },
     {kLink}},

    {"S1_CollectiveMissing",
     Sample::kIndexed,
     [](D& d) { Erase(d, IndexOf(d, "all_reduce")); },
     {kMissing}},
    {"S1_CollectiveMissingOfABlock",
     Sample::kBlock,
     [](D& d) { Erase(d, IndexOf(d, "all_reduce")); },
     {kMissing}},
    {"G4_ReductionBeforeItsCombine",
     Sample::kBlock,
     [](D& d) {
       std::swap(d.steps[IndexOf(d, "all_reduce")],
                 d.steps[IndexOf(d, "moe_combine")]);
     },
     {kLink}},
    {"S1_CollectiveOfNoRow",
     Sample::kBlock,
     [](D& d) { Nth<step::AllReduce>(d).row = ScheduleRow(99); },
     {kUnscheduled, kMissing}},
    {"S1_CollectiveOfAnotherBlocksRow",
     Sample::kBlock,
     [](D& d) { Nth<step::AllReduce>(d).row = ScheduleRow(0); },
     {kUnscheduled, kMissing}},
    {"S1_CollectiveOfAnotherAxis",
     Sample::kIndexed,
     [](D& d) { Nth<step::AllReduce>(d).group.axis = Axis::kTp; },
     {kUnscheduled}},
    {"S1_CollectiveOfAnotherKind",
     Sample::kIndexed,
     [](D& d) {
       const auto reduce = Nth<step::AllReduce>(d);
       d.steps[IndexOf(d, "all_reduce")] =
           step::Broadcast{.x = reduce.x,
                           .out = reduce.out,
                           .group = reduce.group,
                           .row = reduce.row};
     },
     {kUnscheduled, kLink}},
    {"S1_CollectiveTwice",
     Sample::kIndexed,
     [](D& d) {
       const size_t at = IndexOf(d, "all_reduce");
       d.steps.insert(d.steps.begin() + static_cast<std::ptrdiff_t>(at),
                      d.steps[at]);
     },
     {kUnscheduled}},
    {"S1_CollectivesOutOfOrder",
     Sample::kIndexed,
     [](D& d) {
       std::swap(Nth<step::AllReduce>(d, 0).row,
                 Nth<step::AllReduce>(d, 1).row);
     },
     {kUnscheduled, kLink}},
};

INSTANTIATE_TEST_SUITE_P(Reject, StructureEdit, ::testing::ValuesIn(kEdits),
                         [](const auto& edit) {
                           return std::string(edit.param.name);
                         });

TEST(Structure, S1_AnInputThatNoStepReadsMayBe) {
  ProgramDraft draft = DraftOf(Sample::kIndexed);
  Spare(draft, BufferKind::kInput, MemoryClass::kIo, IoRole::kBlockInput);
  EXPECT_EQ(SealCodes(draft, PlanOf(Sample::kIndexed)), Codes{});
}

constexpr std::string_view kMoeKinds[] = {
    "moe_route",        "indexed_moe_gemv",      "moe_scatter",
    "grouped_moe_gemm", "moe_gate_up_unscatter", "moe_activation",
    "moe_combine"};

bool IsMoe(const step::Step& step) {
  for (const std::string_view kind : kMoeKinds) {
    if (KindName(step) == kind) return true;
  }
  return false;
}

TEST(Structure, G3_EveryMoeStepIsNeededOnceInItsPlace) {
  for (const Sample sample :
       {Sample::kIndexed, Sample::kGrouped, Sample::kPrecomputedBlock}) {
    const ProgramDraft right = DraftOf(sample);
    for (size_t i = 0; i < right.steps.size(); ++i) {
      if (!IsMoe(right.steps[i])) continue;
      ProgramDraft without = right;
      Erase(without, i);
      EXPECT_EQ(SealCodes(without, PlanOf(sample)), Codes{kGrammar})
          << Name(sample) << " without step " << i;
      ProgramDraft twice = right;
      twice.steps.insert(twice.steps.begin() + static_cast<std::ptrdiff_t>(i),
                         right.steps[i]);
      EXPECT_EQ(SealCodes(twice, PlanOf(sample)), Codes{kGrammar})
          << Name(sample) << " with step " << i << " twice";
      if (i + 1 < right.steps.size() && IsMoe(right.steps[i + 1])) {
        ProgramDraft swapped = right;
        std::swap(swapped.steps[i], swapped.steps[i + 1]);
        EXPECT_EQ(SealCodes(swapped, PlanOf(sample)), Codes{kGrammar})
            << Name(sample) << " with step " << i << " late";
      }
    }
  }
}

TEST(Structure, G4_EveryOperandOfABlockIsLinked) {
  // What enters a block from outside, or leaves it; S2 and S3 prove those.
  const auto is_free = [](std::string_view kind, std::string_view operand) {
    return (kind == "moe_route" && operand != "ids" && operand != "weights") ||
           (kind == "moe_scatter" &&
            (operand == "counts" || operand == "offsets")) ||
           (kind == "indexed_moe_gemv" && operand == "experts");
  };
  int linked = 0;
  for (const Sample sample : {Sample::kIndexed, Sample::kGrouped}) {
    const ProgramDraft right = DraftOf(sample);
    for (size_t i = 0; i < right.steps.size(); ++i) {
      step::Step step = right.steps[i];
      if (!IsMoe(step)) continue;
      bool gate_up = false;
      if (const auto* gemv = std::get_if<step::IndexedMoeGemv>(&step)) {
        gate_up = gemv->which == step::ExpertPart::kGateUp;
      } else if (const auto* gemm = std::get_if<step::GroupedMoeGemm>(&step)) {
        gate_up = gemm->which == step::ExpertPart::kGateUp;
      }
      for (size_t n = 0; n < OperandsOf(step).size(); ++n) {
        ProgramDraft draft = right;
        const OperandRef operand = OperandsOf(draft.steps[i])[n];
        if (is_free(KindName(step), operand.name)) continue;
        if (gate_up && operand.name == "x") continue;
        // The decoy is equal in all but its name.
        BufferDecl decoy = right.buffers[*operand.id];
        decoy.name = "decoy";
        *operand.id = draft.buffers.Push(decoy);
        const Codes codes = SealCodes(draft, PlanOf(sample));
        EXPECT_EQ(codes, Codes{kLink})
            << Name(sample) << " step " << i << " " << KindName(step) << " "
            << operand.name << ": " << Spell(codes);
        ++linked;
      }
    }
  }
  EXPECT_GT(linked, 50);
}

}  // namespace
}  // namespace signet::testing
