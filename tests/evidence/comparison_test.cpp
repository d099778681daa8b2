// Anti-vacuity of the comparison itself (contract E1, E3, N5): one bit of
// anything a side shows is found, at its position and place, and nothing else
// is.

#include "evidence/comparison.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "evidence/mesh_side.h"
#include "evidence/side_log.h"
#include "evidence/verify_testing.h"
#include "support/running_model.h"

namespace signet::testing {
namespace {

using evidence::Bounds;
using evidence::CallRecord;
using evidence::Comparison;
using evidence::kNoLayer;
using evidence::Piece;
using evidence::Place;
using evidence::SideLog;
using evidence::What;

// Two chunks of a prompt, two tokens and the state after them.
std::vector<CallRecord> RecordsOf(const std::filesystem::path& model,
                                  const char* mesh) {
  const topology::Mesh made = CpuMesh(mesh);
  evidence::SideSpec spec{made.spec(), {}};
  for (int r = 0; r < made.num_ranks(); ++r) {
    spec.devices.push_back(made.device(Rank(r)));
  }
  const evidence::SidePlan plan =
      ValueOrDie(MakeSidePlan(OpenManifest(model), spec,
                              {.context = 64,
                               .page_tokens = 4,
                               .prefill_chunks = {4, 8},
                               .all_logits = true},
                              std::nullopt));
  const auto side = ValueOrDie(
      evidence::MeshSide::Start(&plan, evidence::Taps::kOn, 2, std::nullopt));
  const std::vector<int32_t> prompt = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5};
  std::vector<CallRecord> records;
  records.push_back(ValueOrDie(side->Prefill(prompt)));
  records.push_back(ValueOrDie(side->Prefill(std::span(prompt).subspan(8))));
  records.push_back(ValueOrDie(side->Decode(8)));
  records.push_back(ValueOrDie(side->Decode(records.back().next_token())));
  records.push_back(side->FinalState());
  return records;
}

void FlipBit(Piece& piece, size_t element, int bit) {
  if (piece.ids.empty()) {
    float& value = piece.values[element];
    value = std::bit_cast<float>(std::bit_cast<uint32_t>(value) ^ (1u << bit));
  } else {
    piece.ids[element] ^= 1 << bit;
  }
}

void ExpectEveryBitIsFound(const std::filesystem::path& model, const char* mesh,
                           size_t kinds) {
  std::set<What> seen;
  size_t turn = 0;
  for (const CallRecord& record : RecordsOf(model, mesh)) {
    EXPECT_TRUE(record.faults.empty());
    for (size_t i = 0; i < record.pieces.size(); ++i) {
      const Piece& piece = record.pieces[i];
      seen.insert(piece.what);
      for (const int64_t row : {int64_t{0}, piece.rows - 1}) {
        ++turn;
        CallRecord other = record;
        const auto width = static_cast<size_t>(piece.width());
        FlipBit(other.pieces[i],
                static_cast<size_t>(row) * width + turn * 7 % width,
                static_cast<int>(turn % 32));
        Comparison comparison(std::nullopt);
        comparison.Add(record, other);
        const Place place{piece.position + row, piece.layer, piece.what};
        EXPECT_EQ(comparison.failed(), place) << ToString(place);
        EXPECT_EQ(comparison.different(), place) << ToString(place);
        EXPECT_FALSE(comparison.holds());
        for (const auto& [position, report] : comparison.positions()) {
          EXPECT_EQ(report.failed, position == place.position);
        }
      }
      CallRecord same = record;
      Comparison comparison(std::nullopt);
      comparison.Add(record, same);
      EXPECT_TRUE(comparison.holds());
    }
  }
  EXPECT_EQ(seen.size(), kinds);
}

TEST(Comparison, E3_OneBitAnywhereIsFoundInItsPlace) {
  ExpectEveryBitIsFound(Tiny("moe_awkward"), "single", 12);
  ExpectEveryBitIsFound(Tiny("moe_top1"), "ep=2", 12);
  // Without experts: no router and no combine.
  ExpectEveryBitIsFound(Tiny("dense_r3"), "single", 8);
}

TEST(Comparison, E3_WhatOnlyOneSideHasIsADifference) {
  const std::vector<CallRecord> records = RecordsOf(Tiny("moe_top1"), "single");
  for (size_t i = 0; i < records[0].pieces.size(); ++i) {
    CallRecord other = records[0];
    const Piece lost = other.pieces[i];
    other.pieces.erase(other.pieces.begin() + static_cast<std::ptrdiff_t>(i));
    for (const bool first_has_it : {true, false}) {
      Comparison comparison(std::nullopt);
      comparison.Add(first_has_it ? records[0] : other,
                     first_has_it ? other : records[0]);
      EXPECT_EQ(comparison.failed(),
                (Place{lost.position, lost.layer, lost.what}));
    }
  }
}

TEST(SideLog, E1_TheTapsMustChangeNothing) {
  const std::vector<CallRecord> records = RecordsOf(Tiny("moe_top1"), "single");
  const auto log = [](const std::vector<CallRecord>& of) {
    SideLog made;
    for (const CallRecord& record : of) made.Add(record);
    return made;
  };
  const SideLog production = log(records);
  EXPECT_TRUE(production.CompareWithTaps(log(records)).empty());
  for (size_t call = 0; call < records.size(); ++call) {
    for (size_t i = 0; i < records[call].pieces.size(); ++i) {
      std::vector<CallRecord> tapped = records;
      Piece& piece = tapped[call].pieces[i];
      FlipBit(piece, piece.values.size() + piece.ids.size() - 1, 3);
      const auto faults = production.CompareWithTaps(log(tapped));
      // What the production programs show: state, last logits and token.
      const bool shown = piece.what <= What::kValues ||
                         piece.what == What::kLogits ||
                         piece.what == What::kToken;
      ASSERT_EQ(faults.size(), shown ? 1u : 0u) << Name(piece.what);
      if (shown) {
        EXPECT_EQ(faults[0].position, tapped[call].last_position());
      }
    }
  }
  std::vector<CallRecord> fewer = records;
  fewer.pop_back();
  EXPECT_EQ(production.CompareWithTaps(log(fewer)).size(), 1u);
}

TEST(SideLog, E2_EveryBitIsInTheDigestOfItsPosition) {
  const std::vector<CallRecord> records = RecordsOf(Tiny("moe_top1"), "single");
  SideLog whole;
  for (const CallRecord& record : records) whole.Add(record);
  const std::vector<Digest> wanted = whole.PositionDigests();
  ASSERT_EQ(wanted.size(), 13u);
  for (size_t i = 0; i < records[1].pieces.size(); ++i) {
    std::vector<CallRecord> changed = records;
    FlipBit(changed[1].pieces[i], 0, 0);
    SideLog log;
    for (const CallRecord& record : changed) log.Add(record);
    const std::vector<Digest> got = log.PositionDigests();
    for (size_t p = 0; p < wanted.size(); ++p) {
      EXPECT_EQ(got[p] != wanted[p],
                static_cast<int64_t>(p) == changed[1].pieces[i].position);
    }
  }
}

// A call of one row: scores of four choices, what was chosen, a residual and
// state.
CallRecord BoundedCall(int64_t position) {
  const auto piece = [&](What what, int32_t layer, std::vector<float> values,
                         std::vector<int32_t> ids = {}) {
    return Piece{.what = what,
                 .layer = layer,
                 .position = position,
                 .rows = 1,
                 .values = std::move(values),
                 .ids = std::move(ids)};
  };
  CallRecord record{.position = position,
                    .rows = 1,
                    .pieces = {},
                    .faults = {},
                    .rank_slots = {}};
  record.pieces = {
      piece(What::kRecurrent, 0, {3, 4}),
      piece(What::kRouterScores, 0, {1.0f, 0.9f, 0.5f, 0.1f}),
      piece(What::kRouterIds, 0, {}, {0, 1}),
      piece(What::kResidual, 0, {0, 10}),
      piece(What::kLogits, kNoLayer, {2.0f, 1.5f, 0, 0}),
      piece(What::kToken, kNoLayer, {}, {0}),
  };
  return record;
}

Piece& PieceOf(CallRecord& record, What what) {
  for (Piece& piece : record.pieces) {
    if (piece.what == what) return piece;
  }
  std::abort();
}

constexpr Bounds kBounds = {.residual = 0.01, .state = 0.02, .logits = 0.2};

// Twenty positions, of which the first `edited` are edited.
Comparison Bounded(int edited, const std::function<void(CallRecord&)>& edit) {
  Comparison comparison(kBounds);
  for (int position = 0; position < 20; ++position) {
    const CallRecord first = BoundedCall(position);
    CallRecord other = first;
    if (position < edited) edit(other);
    comparison.Add(first, other);
  }
  return comparison;
}

TEST(Comparison, N5_NumbersMayBeApartByTheirBounds) {
  const auto apart = [](What what, size_t index, float by) {
    return Bounded(20, [=](CallRecord& record) {
      PieceOf(record, what).values[index] += by;
    });
  };
  EXPECT_TRUE(apart(What::kResidual, 1, 0.09f).holds());
  EXPECT_FALSE(apart(What::kResidual, 0, 0.11f).holds());
  EXPECT_TRUE(apart(What::kRecurrent, 0, 0.09f).holds());
  EXPECT_FALSE(apart(What::kRecurrent, 1, 0.11f).holds());
  EXPECT_TRUE(apart(What::kLogits, 3, 0.4f).holds());
  EXPECT_FALSE(apart(What::kLogits, 3, 0.6f).holds());
  EXPECT_FALSE(
      apart(What::kLogits, 0, std::numeric_limits<float>::quiet_NaN()).holds());
  EXPECT_NEAR(apart(What::kResidual, 1, 0.05f).relative().residual, 0.005,
              1e-6);
}

TEST(Comparison, N5_AnotherTokenIsExcusedOnlyWithinItsMargin) {
  const auto other_token = [](float moved, int edited) {
    return Bounded(edited, [=](CallRecord& record) {
      PieceOf(record, What::kLogits).values[1] += moved;
      PieceOf(record, What::kToken).ids[0] = 1;
    });
  };
  // The margin is 0.5; a difference of 0.3 excuses it, one of 0.2 does not.
  EXPECT_TRUE(other_token(0.3f, 1).holds());
  EXPECT_EQ(other_token(0.3f, 1).excused(), 1);
  ASSERT_EQ(other_token(0.3f, 1).excuses().size(), 1u);
  EXPECT_NEAR(other_token(0.3f, 1).excuses()[0].margin, 0.5, 1e-6);
  EXPECT_FALSE(other_token(0.2f, 1).holds());
  EXPECT_EQ(other_token(0.2f, 1).failed(), (Place{0, kNoLayer, What::kToken}));
  // More than 5 % of the positions.
  EXPECT_FALSE(other_token(0.3f, 2).holds());
  EXPECT_FALSE(other_token(0.3f, 2).failed().has_value());
}

TEST(Comparison, N5_AnotherExpertIsExcusedOnlyWithinItsMargin) {
  const auto other_expert = [](float moved, int32_t expert) {
    return Bounded(1, [=](CallRecord& record) {
      PieceOf(record, What::kRouterScores).values[2] += moved;
      PieceOf(record, What::kRouterIds).ids[1] = expert;
      // What follows from it.
      PieceOf(record, What::kResidual).values[0] += 5;
    });
  };
  EXPECT_TRUE(other_expert(0.3f, 2).holds());
  EXPECT_FALSE(other_expert(0.1f, 2).holds());
  EXPECT_EQ(other_expert(0.1f, 2).failed(), (Place{0, 0, What::kRouterIds}));
  EXPECT_FALSE(other_expert(0.3f, 9).holds());
  EXPECT_FALSE(other_expert(0.3f, -1).holds());
}

TEST(Comparison, N5_ChoicesNeedNoBitsWhereNothingWasBounded) {
  // Bitwise, the same edit fails at once.
  CallRecord other = BoundedCall(0);
  PieceOf(other, What::kLogits).values[1] += 0.3f;
  PieceOf(other, What::kToken).ids[0] = 1;
  Comparison comparison(std::nullopt);
  comparison.Add(BoundedCall(0), other);
  EXPECT_EQ(comparison.failed(), (Place{0, kNoLayer, What::kLogits}));
  EXPECT_EQ(comparison.excused(), 0);
}

}  // namespace
}  // namespace signet::testing
