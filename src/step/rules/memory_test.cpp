// S4, S5 and S6 on hand-written drafts; S5 also against brute force.

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "step/draft_testing.h"
#include "step/operands.h"
#include "step/rules/lifetimes.h"
#include "step/rules/rules.h"

namespace signet::step::rules {
namespace {

using step::testing::CodesOf;
using step::testing::DraftBuilder;
using step::testing::MakeMesh;
using step::testing::Nth;
using topology::Axis;
using Codes = std::set<RejectionCode>;

Codes Capacity(const ProgramDraft& draft) {
  Findings findings;
  CheckCapacity(draft, findings);
  return CodesOf(std::move(findings));
}

Codes Aliasing(const ProgramDraft& draft) {
  Findings findings;
  CheckAliasing(draft, nullptr, findings);
  return CodesOf(std::move(findings));
}

// x -> a -> b -> out, each in its own place.
ProgramDraft Chain() {
  DraftBuilder b;
  const BufferId x = b.Input("x");
  const BufferId first = b.Work("first");
  const BufferId second = b.Work("second");
  const BufferId third = b.Work("third");
  const BufferId out = b.Output("out");
  const BufferId weight = b.Weight("w");
  b.Add(Norm{.x = x, .weight = weight, .out = first});
  b.Add(Norm{.x = first, .weight = weight, .out = second});
  b.Add(ResidualAdd{.residual = second, .addend = x, .out = third});
  b.Add(ResidualAdd{.residual = third, .addend = x, .out = out});
  return b.draft;
}

BufferDecl& At(ProgramDraft& draft, int32_t id) {
  return draft.buffers[BufferId(id)];
}

TEST(Capacity, S4_EveryByteOfEveryShapeIsThere) {
  EXPECT_EQ(Capacity(Chain()), Codes{});
  const ProgramDraft right = Chain();
  for (size_t i = 0; i < right.buffers.size(); ++i) {
    ProgramDraft draft = right;
    BufferDecl& buffer = At(draft, static_cast<int32_t>(i));
    buffer.size = buffer.size - Bytes(1);
    EXPECT_EQ(Capacity(draft), Codes{RejectionCode::kBufferTooSmall})
        << buffer.name;
  }
}

TEST(Capacity, S4_OverflowAndEmptyShapesAreTooSmall) {
  ProgramDraft huge = Chain();
  At(huge, 1).shape = {int64_t{1} << 62, int64_t{1} << 62};
  EXPECT_EQ(Capacity(huge), Codes{RejectionCode::kBufferTooSmall});
  ProgramDraft negative = Chain();
  At(negative, 1).shape = {-1};
  EXPECT_EQ(Capacity(negative), Codes{RejectionCode::kBufferTooSmall});
  ProgramDraft empty = Chain();
  At(empty, 1).shape = {0};
  At(empty, 1).size = Bytes();
  EXPECT_EQ(Capacity(empty), Codes{RejectionCode::kBufferTooSmall});
}

TEST(Capacity, S4_BuffersLieAlignedWithinTheirArena) {
  ProgramDraft over = Chain();
  over.arena_bytes[MemoryClass::kWorkspace] =
      over.arena_bytes[MemoryClass::kWorkspace] - Bytes(1);
  EXPECT_EQ(Capacity(over), Codes{RejectionCode::kArenaOverrun});
  ProgramDraft absent = Chain();
  absent.arena_bytes.erase(MemoryClass::kWorkspace);
  EXPECT_EQ(Capacity(absent), Codes{RejectionCode::kArenaOverrun});
  ProgramDraft far = Chain();
  At(far, 1).offset_bytes = ~uint64_t{63};
  EXPECT_EQ(Capacity(far), Codes{RejectionCode::kArenaOverrun});
  ProgramDraft odd = Chain();
  At(odd, 1).offset_bytes += 4;
  EXPECT_EQ(Capacity(odd), Codes{RejectionCode::kArenaOverrun});
  ProgramDraft mapped = Chain();
  At(mapped, 5).offset_bytes = 64;  // the weight
  EXPECT_EQ(Capacity(mapped), Codes{RejectionCode::kArenaOverrun});
}

TEST(Aliasing, S5_ReuseAfterTheLastReader) {
  ProgramDraft draft = Chain();
  EXPECT_EQ(Aliasing(draft), Codes{});
  // `first` is last read by the step that writes `second`; `third` comes later.
  At(draft, 3).offset_bytes = At(draft, 1).offset_bytes;
  EXPECT_EQ(Aliasing(draft), Codes{});
}

TEST(Aliasing, S5_OverlapWithinOneStepIsRefused) {
  ProgramDraft draft = Chain();
  // A norm is no in-place step.
  At(draft, 2).offset_bytes = At(draft, 1).offset_bytes;
  EXPECT_EQ(Aliasing(draft), Codes{RejectionCode::kBuffersOverlap});
}

TEST(Aliasing, S5_OverlapByOneByteIsRefused) {
  ProgramDraft draft = Chain();
  At(draft, 2).offset_bytes =
      At(draft, 1).offset_bytes + At(draft, 1).size.value() - 1;
  EXPECT_EQ(Aliasing(draft), Codes{RejectionCode::kBuffersOverlap});
  At(draft, 2).offset_bytes += 1;
  At(draft, 3).offset_bytes = 1 << 20;
  EXPECT_EQ(Aliasing(draft), Codes{});
}

TEST(Aliasing, S5_BothNamesAreSaid) {
  ProgramDraft draft = Chain();
  At(draft, 2).offset_bytes = At(draft, 1).offset_bytes;
  Findings findings;
  CheckAliasing(draft, nullptr, findings);
  RejectionList list;
  findings.FlushInto("test", &list);
  const std::string text = Describe(list.Take().value());
  EXPECT_NE(text.find("first"), std::string::npos) << text;
  EXPECT_NE(text.find("second"), std::string::npos) << text;
}

TEST(Aliasing, S5_InPlacePairCoversExactlyOneRange) {
  ProgramDraft draft = Chain();
  // `third` over `second`, its residual, which is not read again.
  At(draft, 3).offset_bytes = At(draft, 2).offset_bytes;
  EXPECT_EQ(Aliasing(draft), Codes{});
  ProgramDraft shifted = draft;
  At(shifted, 3).offset_bytes += 4;
  EXPECT_EQ(Aliasing(shifted), Codes{RejectionCode::kBuffersOverlap});
  ProgramDraft longer = draft;
  At(longer, 3).size = At(longer, 3).size + Bytes(4);
  At(longer, 3).offset_bytes = At(longer, 2).offset_bytes;
  EXPECT_EQ(Aliasing(longer), Codes{RejectionCode::kBuffersOverlap});
  // Read again afterwards: its bytes are still needed.
  ProgramDraft read_again = draft;
  Nth<ResidualAdd>(read_again, 1).addend = BufferId(2);
  EXPECT_EQ(Aliasing(read_again), Codes{RejectionCode::kBuffersOverlap});
  // The addend of a residual add is no in-place operand.
  ProgramDraft addend = draft;
  std::swap(Nth<ResidualAdd>(addend).residual, Nth<ResidualAdd>(addend).addend);
  EXPECT_EQ(Aliasing(addend), Codes{RejectionCode::kBuffersOverlap});
}

TEST(Aliasing, S5_LastingBuffersAreNeverReused) {
  for (const BufferKind kind :
       {BufferKind::kInput, BufferKind::kConstant, BufferKind::kState,
        BufferKind::kFlag, BufferKind::kWeight}) {
    ProgramDraft draft = Chain();
    BufferDecl lasting = At(draft, 1);
    lasting.name = "lasting";
    lasting.kind = kind;
    lasting.weight = WeightRef{.weight = WeightId(0)};
    draft.buffers.Push(lasting);
    EXPECT_EQ(Aliasing(draft), Codes{RejectionCode::kBuffersOverlap})
        << Name(kind);
  }
  // An output is read by the executor after the last step.
  ProgramDraft output = Chain();
  At(output, 2).io = IoRole::kBlockOutput;
  At(output, 3).offset_bytes = At(output, 2).offset_bytes;
  EXPECT_EQ(Aliasing(output), Codes{RejectionCode::kBuffersOverlap});
}

TEST(Aliasing, S5_ArenasAndRanksAreApart) {
  ProgramDraft draft = Chain();
  At(draft, 2).offset_bytes = At(draft, 1).offset_bytes;
  At(draft, 2).rank = Rank(1);
  EXPECT_EQ(Aliasing(draft), Codes{});
  At(draft, 2).rank = Rank(0);
  At(draft, 2).arena = MemoryClass::kCommunicator;
  EXPECT_EQ(Aliasing(draft), Codes{});
}

// The definition of S5, pair by pair.
bool AnyOverlap(const ProgramDraft& draft) {
  const IdVector<BufferId, Lifetime> lives = LifetimesOf(draft);
  const auto allowed = [&](BufferId a, BufferId b) {
    if (lives[a].last != lives[b].first || lives[a].first >= lives[a].last) {
      return false;
    }
    const auto time = static_cast<size_t>(lives[b].first);
    if (time >= draft.steps.size()) return false;
    const auto pair = InPlace(draft.steps[time]);
    return pair && pair->source == a && pair->target == b &&
           draft.buffers[a].offset_bytes == draft.buffers[b].offset_bytes &&
           draft.buffers[a].size == draft.buffers[b].size;
  };
  for (size_t i = 0; i < draft.buffers.size(); ++i) {
    for (size_t j = i + 1; j < draft.buffers.size(); ++j) {
      const BufferId a(static_cast<int32_t>(i));
      const BufferId b(static_cast<int32_t>(j));
      const BufferDecl& x = draft.buffers[a];
      const BufferDecl& y = draft.buffers[b];
      if (x.arena != y.arena || x.rank != y.rank ||
          x.arena == MemoryClass::kMapped) {
        continue;
      }
      const bool touched =
          lives[a].first <= lives[a].last && lives[b].first <= lives[b].last;
      const bool meet =
          lives[a].first <= lives[b].last && lives[b].first <= lives[a].last;
      const bool share = x.offset_bytes < y.offset_bytes + y.size.value() &&
                         y.offset_bytes < x.offset_bytes + x.size.value();
      if (touched && meet && share && !allowed(a, b) && !allowed(b, a)) {
        return true;
      }
    }
  }
  return false;
}

TEST(Aliasing, S5_AgreesWithBruteForce) {
  const uint64_t seed = std::random_device{}();
  RecordProperty("seed", std::to_string(seed));
  std::mt19937_64 random(seed);
  const auto below = [&](int n) { return static_cast<int32_t>(random() % n); };
  int overlapping = 0;
  constexpr int kRuns = 4000;
  for (int run = 0; run < kRuns; ++run) {
    ProgramDraft draft;
    const int num_buffers = 2 + below(7);
    // Few places and sizes, so that exact pairs and free layouts both happen.
    const int places = 1 + below(24);
    for (int i = 0; i < num_buffers; ++i) {
      BufferDecl buffer{.name = std::to_string(i)};
      buffer.offset_bytes = static_cast<uint64_t>(below(places)) * 64;
      buffer.size = Bytes(64 * (1 + static_cast<uint64_t>(below(2))));
      if (below(12) == 0) buffer.kind = BufferKind::kState;
      if (below(12) == 0) buffer.rank = Rank(1);
      if (below(12) == 0) buffer.arena = MemoryClass::kIo;
      if (below(16) == 0) buffer.io = IoRole::kBlockOutput;
      draft.buffers.Push(buffer);
    }
    const auto any = [&] { return BufferId(below(num_buffers)); };
    const int num_steps = 1 + below(8);
    for (int i = 0; i < num_steps; ++i) {
      switch (below(3)) {
        case 0:
          draft.steps.emplace_back(
              ResidualAdd{.residual = any(), .addend = any(), .out = any()});
          break;
        case 1:
          draft.steps.emplace_back(
              Activation{.gate = any(), .up = any(), .out = any()});
          break;
        default:
          draft.steps.emplace_back(
              Norm{.x = any(), .weight = any(), .out = any()});
      }
    }
    const bool want = AnyOverlap(draft);
    overlapping += want ? 1 : 0;
    ASSERT_EQ(!Aliasing(draft).empty(), want)
        << "seed " << seed << " run " << run << "\n"
        << ToText(draft);
  }
  // Both verdicts are well represented.
  EXPECT_GT(overlapping, kRuns / 10);
  EXPECT_LT(overlapping, kRuns * 9 / 10);
}

Codes Placement(const ProgramDraft& draft, const topology::Mesh& mesh) {
  Findings findings;
  CheckPlacement(draft, {.mesh = &mesh}, findings);
  return CodesOf(std::move(findings));
}

// Rank 3 of pp=2,ep=2: its ep group is 2,3 and its pp line 1,3.
ProgramDraft Collectives(const topology::Mesh& mesh) {
  DraftBuilder b;
  b.draft.rank = Rank(3);
  const GroupRef ep{Axis::kEp, {Rank(2), Rank(3)}, mesh.epoch()};
  const GroupRef pp{Axis::kPp, {Rank(1), Rank(3)}, mesh.epoch()};
  const BufferId x = b.Work("x");
  b.Add(AllReduce{.x = x,
                  .out = x,
                  .group = ep,
                  .elements = DraftBuilder::kRows * DraftBuilder::kWidth});
  b.Add(Gather{.x = x, .out = x, .group = ep});
  b.Add(Broadcast{.x = x, .out = x, .group = ep, .root = Rank(2)});
  b.Add(BandTransfer{.x = x, .out = x, .group = pp});
  for (BufferDecl& buffer : b.draft.buffers) buffer.rank = Rank(3);
  return b.draft;
}

TEST(Placement, S6_GroupsAreTheMeshsOwn) {
  const topology::Mesh mesh = MakeMesh("pp=2,ep=2");
  EXPECT_EQ(Placement(Collectives(mesh), mesh), Codes{});
  const auto broken = [&](auto edit) {
    ProgramDraft draft = Collectives(mesh);
    edit(draft);
    return Placement(draft, mesh);
  };
  const Codes mismatch = {RejectionCode::kGroupMismatch};
  using D = ProgramDraft;
  EXPECT_EQ(broken([](D& d) { Nth<AllReduce>(d).group.axis = Axis::kTp; }),
            mismatch);
  EXPECT_EQ(broken([](D& d) { Nth<AllReduce>(d).group.ranks.pop_back(); }),
            mismatch);
  EXPECT_EQ(broken([](D& d) {
              auto& ranks = Nth<AllReduce>(d).group.ranks;
              std::swap(ranks[0], ranks[1]);  // not in axis order
            }),
            mismatch);
  EXPECT_EQ(
      broken([](D& d) { Nth<Gather>(d).group.ranks = {Rank(0), Rank(1)}; }),
      mismatch);
  EXPECT_EQ(broken([](D& d) { Nth<Broadcast>(d).group.ranks.clear(); }),
            mismatch);
  EXPECT_EQ(broken([](D& d) { Nth<Broadcast>(d).root = Rank(1); }), mismatch);
  EXPECT_EQ(broken([](D& d) { ++Nth<AllReduce>(d).elements; }), mismatch);
  EXPECT_EQ(broken([](D& d) { --Nth<AllReduce>(d).elements; }), mismatch);
  EXPECT_EQ(broken([](D& d) { Nth<AllReduce>(d).elements = -1; }), mismatch);
  EXPECT_EQ(broken([](D& d) {
              auto& ranks = Nth<BandTransfer>(d).group.ranks;
              std::swap(ranks[0], ranks[1]);  // against the stream
            }),
            mismatch);
  EXPECT_EQ(broken([](D& d) {
              Nth<BandTransfer>(d).group.ranks = {Rank(0), Rank(2)};
            }),
            mismatch);
  EXPECT_EQ(broken([](D& d) { Nth<BandTransfer>(d).group.axis = Axis::kEp; }),
            mismatch);
}

TEST(Placement, M3_EpochsAreTheMeshs) {
  const topology::Mesh mesh = MakeMesh("pp=2,ep=2");
  const topology::Mesh again = MakeMesh("pp=2,ep=2");  // equal, but another
  EXPECT_EQ(Placement(Collectives(again), mesh),
            Codes{RejectionCode::kEpochStale});
  ProgramDraft transfer = Collectives(mesh);
  Nth<BandTransfer>(transfer).group.epoch = again.epoch();
  EXPECT_EQ(Placement(transfer, mesh), Codes{RejectionCode::kEpochStale});
}

TEST(Placement, S6_ArenasAreTheRanksOwn) {
  const topology::Mesh mesh = MakeMesh("pp=2,ep=2");
  ProgramDraft draft = Collectives(mesh);
  At(draft, 0).rank = Rank(2);
  EXPECT_EQ(Placement(draft, mesh), Codes{RejectionCode::kArenaOfOtherRank});
}

}  // namespace
}  // namespace signet::step::rules
