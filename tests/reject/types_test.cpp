// S2 and P5: every field of every buffer, every attribute, every operand.

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <span>
#include <vector>

#include "tests/reject/one_edit.h"

namespace signet::testing {
namespace {

using step::BufferDecl;
using step::BufferKind;
using step::ProgramDraft;

class TypesEdit : public ::testing::TestWithParam<OneEdit> {};

TEST_P(TypesEdit, IsRefused) {
  const OneEdit& edit = GetParam();
  ProgramDraft draft = DraftOf(edit.sample);
  edit.apply(draft);
  const Codes codes = SealCodes(std::move(draft), PlanOf(edit.sample));
  EXPECT_EQ(codes, edit.codes) << Spell(codes);
}

using D = ProgramDraft;
constexpr RejectionCode kRecipe = RejectionCode::kWeightRecipe;
constexpr RejectionCode kRole = RejectionCode::kOperandRole;
constexpr RejectionCode kAttribute = RejectionCode::kStepAttribute;
constexpr RejectionCode kShape = RejectionCode::kOperandShape;

void SwapWeights(D& d, std::string_view a, std::string_view b) {
  std::swap(Buffer(d, a).weight, Buffer(d, b).weight);
}

// The n-th operand called `name` of a kind, pointed elsewhere.
void Point(D& d, std::string_view kind, std::string_view operand,
           std::string_view to, int n = 0) {
  for (const OperandRef& ref : OperandsOf(d.steps[IndexOf(d, kind, n)])) {
    if (ref.name == operand) *ref.id = IdOf(d, to);
  }
}

const OneEdit kEdits[] = {
    // Inputs of products on the tensor cores (N1).
    {"N1_AnInputNotRounded",
     Sample::kRounded,
     [](D& d) { Nth<step::Projection>(d).x = Nth<step::Round>(d).x; },
     {RejectionCode::kOperandDType}},
    {"N1_ARouterInputRounded",
     Sample::kRounded,
     [](D& d) {
       for (step::Step& step : d.steps) {
         auto* product = std::get_if<step::Projection>(&step);
         if (product == nullptr ||
             d.buffers[product->out].name != "l0.moe.scores") {
           continue;
         }
         product->x = IdOf(d, "l0.y.rounded");
       }
     },
     {RejectionCode::kOperandDType}},
    {"N1_ARoundingOfOtherWidth",
     Sample::kRounded,
     [](D& d) { Buffer(d, "l0.x.rounded").dtype = tensor::DType::kF32; },
     {RejectionCode::kOperandDType}},
    {"P4_AGpuWeightReadFromTheFile",
     Sample::kOnGpu,
     [](D& d) {
       Buffer(d, "w.0.in_proj_z").arena = MemoryClass::kMapped;
       Buffer(d, "w.0.in_proj_z").offset_bytes = 0;
     },
     {kRole}},
    // Equal shapes, other meaning: only the recipe tells them apart.
    {"S2_NormsOfOneLayerSwapped",
     Sample::kIndexed,
     [](D& d) {
       SwapWeights(d, "w.0.input_layernorm", "w.0.post_attention_layernorm");
     },
     {kRecipe}},
    {"S2_NormsOfTwoLayersSwapped",
     Sample::kIndexed,
     [](D& d) { SwapWeights(d, "w.0.input_layernorm", "w.1.input_layernorm"); },
     {kRecipe}},
    {"S2_KeyAndValueSwapped",
     Sample::kIndexed,
     [](D& d) { SwapWeights(d, "w.1.k_proj", "w.1.v_proj"); },
     {kRecipe}},
    {"S2_HeadNormsSwapped",
     Sample::kIndexed,
     [](D& d) { SwapWeights(d, "w.1.q_norm", "w.1.k_norm"); },
     {kRecipe}},
    {"S2_BetaAndDecaySwapped",
     Sample::kIndexed,
     [](D& d) { SwapWeights(d, "w.0.in_proj_b", "w.0.in_proj_a"); },
     {kRecipe}},
    {"S2_DecayBiasSwapped",
     Sample::kIndexed,
     [](D& d) { SwapWeights(d, "w.0.A_log", "w.0.dt_bias"); },
     {kRecipe}},
    {"S2_SharedGateAndUpSwapped",
     Sample::kIndexed,
     [](D& d) { SwapWeights(d, "w.0.shared_gate_proj", "w.0.shared_up_proj"); },
     {kRecipe}},
    {"S2_RoutersOfTwoLayersSwapped",
     Sample::kIndexed,
     [](D& d) { SwapWeights(d, "w.0.router", "w.1.router"); },
     {kRecipe}},
    {"S2_HeadReadsTheEmbedding",
     Sample::kIndexed,
     [](D& d) { Point(d, "logits", "weight", "w.embed_tokens"); },
     {kRecipe}},
    {"S2_WeightUsedTwice",
     Sample::kIndexed,
     [](D& d) {
       const size_t at = IndexOf(d, "norm");
       d.steps.insert(d.steps.begin() + static_cast<std::ptrdiff_t>(at),
                      d.steps[at]);
     },
     {kRecipe}},
    {"S2_ActivationOperandsSwapped",
     Sample::kDense,
     [](D& d) {
       auto& s = Nth<step::Activation>(d);
       std::swap(s.gate, s.up);
     },
     {kRecipe}},
    {"S2_ResidualNotAdded",
     Sample::kIndexed,
     [](D& d) { Point(d, "residual_add", "residual", "l0.mixed"); },
     {kRecipe}},
    {"S2_MixerAddedAfterTheFeedForward",
     Sample::kIndexed,
     [](D& d) { Point(d, "residual_add", "addend", "l0.mixed", 1); },
     {kRecipe}},
    {"S2_LayerReadsTheLayerBefore",
     Sample::kIndexed,
     [](D& d) { Point(d, "norm", "x", "embedded", 2); },
     {kRecipe}},
    {"S2_RouterReadsTheMixersInput",
     Sample::kIndexed,
     [](D& d) {
       for (step::Step& s : d.steps) {
         auto* product = std::get_if<step::Projection>(&s);
         if (product == nullptr) continue;
         if (d.buffers[product->weight].name != "w.0.router") continue;
         product->x = IdOf(d, "l0.x");
       }
     },
     {kRecipe}},
    {"S2_RouteOfTheLayerBefore",
     Sample::kIndexed,
     [](D& d) { Point(d, "moe_route", "scores", "l0.moe.scores", 1); },
     {kRecipe}},
    {"S2_ExpertsReadTheMixersInput",
     Sample::kIndexed,
     [](D& d) { Point(d, "indexed_moe_gemv", "x", "l0.x"); },
     {kRecipe}},
    {"S2_SharedExpertSkipped",
     Sample::kIndexed,
     [](D& d) { Point(d, "residual_add", "addend", "l0.moe.reduced", 1); },
     {kRecipe}},
    {"S2_RoutedBlockWithAnotherWeight",
     Sample::kBlock,
     [](D& d) {
       Buffer(d, "w.1.router").weight->weight =
           *DraftOf(Sample::kIndexed)
                .buffers[IdOf(DraftOf(Sample::kIndexed), "w.0.router")]
                .weight->weight;
     },
     {kRecipe}},

    {"S2_PositionsForSlots",
     Sample::kIndexed,
     [](D& d) { Point(d, "conv", "slot", "io.position"); },
     {kRole}},
    {"S2_IdsForPositions",
     Sample::kIndexed,
     [](D& d) { Point(d, "kv_append", "position", "io.ids"); },
     {kRole}},
    {"S2_LiveRowsElsewhere",
     Sample::kIndexed,
     [](D& d) { d.live = IdOf(d, "io.flags"); },
     {kRole}},
    {"S2_CachesSwapped",
     Sample::kIndexed,
     [](D& d) {
       auto& s = Nth<step::KvAppend>(d);
       std::swap(s.k_cache, s.v_cache);
     },
     {kRole}},
    {"S2_StateAtAnotherPlace",
     Sample::kIndexed,
     [](D& d) { Buffer(d, "l0.delta_state").offset_bytes += 64; },
     {kRole}},
    {"S2_WorkForAWeight",
     Sample::kIndexed,
     [](D& d) { Point(d, "norm", "weight", "l0.x"); },
     {kRole, kRecipe}},
    {"S2_InputForTheResidual",
     Sample::kIndexed,
     [](D& d) { Point(d, "norm", "x", "l0.conv_state"); },
     {kRole, kShape}},
    {"S2_NothingSampled",
     Sample::kIndexed,
     [](D& d) {
       Erase(d, IndexOf(d, "sample"));
       BufferDecl& b = Buffer(d, "io.sampled");
       b.io.reset();
       b.arena = MemoryClass::kWorkspace;
     },
     {kRole}},
    {"S2_AnotherBufferForTheLogits",
     Sample::kIndexed,
     [](D& d) {
       Buffer(d, "io.logits").io.reset();
       Buffer(d, "io.logits").arena = MemoryClass::kWorkspace;
       Buffer(d, "final").io = step::IoRole::kLogits;
       Buffer(d, "final").arena = MemoryClass::kIo;
     },
     {kRole}},
    {"S2_BlockWithoutOutput",
     Sample::kBlock,
     [](D& d) {
       BufferDecl& b = Buffer(d, "io.block_output");
       b.io.reset();
       b.arena = MemoryClass::kWorkspace;
     },
     {kRole}},

    {"S2_ScratchOfARecurrentStep",
     Sample::kIndexed,
     [](D& d) {
       Nth<step::DeltaRule>(d).scratch =
           d.buffers.Push({.name = "scratch", .shape = {4, 64 * 73}});
     },
     {kAttribute, kShape}},
    {"S2_ChunkedWithoutScratch",
     Sample::kGrouped,
     [](D& d) { Nth<step::DeltaRule>(d).scratch.reset(); },
     {kAttribute}},
    {"P5_TileOfNoRows",
     Sample::kGrouped,
     [](D& d) {
       for (step::Step& s : d.steps) {
         if (auto* x = std::get_if<step::MoeScatter>(&s)) x->tile_rows = 0;
         if (auto* x = std::get_if<step::GroupedMoeGemm>(&s)) x->tile_rows = 0;
       }
     },
     {kAttribute}},
    {"P5_TileThatOverflows",
     Sample::kGrouped,
     [](D& d) {
       for (step::Step& s : d.steps) {
         constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();
         if (auto* x = std::get_if<step::MoeScatter>(&s)) x->tile_rows = kHuge;
         if (auto* x = std::get_if<step::GroupedMoeGemm>(&s)) {
           x->tile_rows = kHuge;
         }
       }
     },
     {kAttribute}},
    // A taller tile needs more rows for the worst routing.
    {"P5_TileTallerThanItsBuffers",
     Sample::kGrouped,
     [](D& d) {
       for (step::Step& s : d.steps) {
         if (auto* x = std::get_if<step::MoeScatter>(&s)) x->tile_rows = 16;
         if (auto* x = std::get_if<step::GroupedMoeGemm>(&s)) x->tile_rows = 16;
       }
     },
     {kShape}},
};

INSTANTIATE_TEST_SUITE_P(Reject, TypesEdit, ::testing::ValuesIn(kEdits),
                         [](const auto& edit) {
                           return std::string(edit.param.name);
                         });

template <typename Edit>
void ExpectEveryBuffer(RejectionCode code, Edit edit) {
  for (const Sample sample : kEverySample) {
    const ProgramDraft right = DraftOf(sample);
    for (size_t i = 0; i < right.buffers.size(); ++i) {
      ProgramDraft draft = right;
      BufferDecl& buffer = draft.buffers[BufferId(static_cast<int32_t>(i))];
      edit(buffer);
      const Codes codes = SealCodes(draft, PlanOf(sample));
      EXPECT_EQ(codes, Codes{code})
          << Name(sample) << " " << buffer.name << ": " << Spell(codes);
    }
  }
}

TEST(Types, S2_EveryBuffersDTypeIsProven) {
  ExpectEveryBuffer(RejectionCode::kOperandDType, [](BufferDecl& b) {
    b.dtype = b.dtype == tensor::DType::kF16 ? tensor::DType::kBF16
                                             : tensor::DType::kF16;
  });
}

TEST(Types, S2_EveryDimensionOfEveryBufferIsProven) {
  for (int dim = 0; dim < tensor::Shape::kMaxDims; ++dim) {
    ExpectEveryBuffer(RejectionCode::kOperandShape, [&](BufferDecl& b) {
      std::vector<int64_t> dims;
      for (int i = 0; i < b.shape.num_dims(); ++i) dims.push_back(b.shape[i]);
      // Past its own dimensions: one more.
      if (dim < b.shape.num_dims()) {
        --dims[static_cast<size_t>(dim)];
      } else {
        dims.push_back(1);
        dims.resize(std::min<size_t>(dims.size(), tensor::Shape::kMaxDims));
      }
      b.shape = tensor::Shape(std::span<const int64_t>(dims));
    });
  }
}

TEST(Types, S2_EveryBuffersBasisIsProven) {
  ExpectEveryBuffer(RejectionCode::kOperandBasis, [](BufferDecl& b) {
    b.basis = tensor::Basis::kHadamard256;
  });
}

TEST(Types, S2_EveryAttributeIsProven) {
  int attributes = 0;
  for (const Sample sample : kEverySample) {
    const ProgramDraft right = DraftOf(sample);
    for (size_t i = 0; i < right.steps.size(); ++i) {
      for (int n = 0;; ++n) {
        ProgramDraft draft = right;
        const std::string_view name = ChangeAttribute(draft.steps[i], n);
        if (name.empty()) break;
        ++attributes;
        const Codes codes = SealCodes(draft, PlanOf(sample));
        EXPECT_NE(codes, Codes{}) << Name(sample) << " step " << i << " "
                                  << KindName(draft.steps[i]) << " " << name;
        // The others are the grammar's and the group's own.
        const bool structural =
            name == "router" || name == "group" || name == "row" ||
            name == "elements" ||
            (name == "which" &&
             KindName(right.steps[i]).find("moe") != std::string_view::npos);
        if (structural) continue;
        EXPECT_TRUE(codes.count(kAttribute) == 1)
            << KindName(draft.steps[i]) << " " << name << ": " << Spell(codes);
      }
    }
  }
  EXPECT_GT(attributes, 100);
}

// No operand of any step can be any other buffer of the program.
TEST(Types, S2_NoOperandCanBeAnotherBuffer) {
  int tried = 0;
  for (const Sample sample : kEverySample) {
    const ProgramDraft right = DraftOf(sample);
    for (size_t i = 0; i < right.steps.size(); ++i) {
      ProgramDraft draft = right;
      for (const OperandRef& operand : OperandsOf(draft.steps[i])) {
        const BufferId own = *operand.id;
        for (size_t b = 0; b < right.buffers.size(); ++b) {
          const BufferId other(static_cast<int32_t>(b));
          if (other == own) continue;
          *operand.id = other;
          ++tried;
          EXPECT_NE(SealCodes(draft, PlanOf(sample)), Codes{})
              << Name(sample) << " step " << i << " "
              << KindName(right.steps[i]) << " " << operand.name << " = "
              << right.buffers[other].name;
        }
        *operand.id = own;
      }
    }
  }
  EXPECT_GT(tried, 10000);
}

TEST(Types, S2_NoStepCanBeLeftOutOrDoneTwice) {
  for (const Sample sample : kEverySample) {
    const ProgramDraft right = DraftOf(sample);
    for (size_t i = 0; i < right.steps.size(); ++i) {
      ProgramDraft without = right;
      Erase(without, i);
      EXPECT_NE(SealCodes(without, PlanOf(sample)), Codes{})
          << Name(sample) << " without step " << i << " "
          << KindName(right.steps[i]);
      ProgramDraft twice = right;
      twice.steps.insert(twice.steps.begin() + static_cast<std::ptrdiff_t>(i),
                         right.steps[i]);
      EXPECT_NE(SealCodes(twice, PlanOf(sample)), Codes{})
          << Name(sample) << " with step " << i << " "
          << KindName(right.steps[i]) << " twice";
    }
  }
}

}  // namespace
}  // namespace signet::testing
