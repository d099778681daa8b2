// The preflight over hand-made schedules: one change to one rank, the refusal
// it must end in (contract F1, F2, M4). Programs that `lower` makes are
// compared in tests/mesh.

#include "exec/preflight.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "step/draft_testing.h"

namespace signet::exec {
namespace {

using plan::CollectiveKind;
using step::testing::CodesOf;
using step::testing::MakeMesh;
using topology::Axis;
using Codes = std::set<RejectionCode>;

constexpr int64_t kElements = 2 * 64;

Meeting Meet(const topology::Mesh& mesh, CollectiveKind kind, int row,
             Axis axis, std::vector<Rank> ranks) {
  return {.kind = kind,
          .row = ScheduleRow(row),
          .group = {axis, std::move(ranks), mesh.epoch()},
          .dtype = tensor::DType::kF32,
          .elements = kElements,
          .bytes = Bytes(4 * kElements),
          .root = Rank(0),
          .step = 0};
}

// Two stages of two expert-parallel ranks each, 0,1 and 2,3: a reduction on
// each, the transfer between them, two more reductions.
class Schedules {
 public:
  Schedules() : mesh(MakeMesh("pp=2,ep=2")), ranks(4) {
    for (int r = 0; r < 4; ++r) {
      const std::vector<Rank> stage = mesh.Group(Axis::kEp, Rank(r));
      const std::vector<Rank> line = mesh.Group(Axis::kPp, Rank(r));
      const auto add = [&](CollectiveKind kind, int row, Axis axis,
                           const std::vector<Rank>& group) {
        std::vector<Meeting>& meetings = at(r).meetings;
        meetings.push_back(Meet(mesh, kind, row, axis, group));
        meetings.back().root = group.front();
        meetings.back().step = meetings.size() * 10;
        if (kind != CollectiveKind::kAllReduce) return;
        at(r).blocks.push_back(
            {.step = meetings.back().step,
             .signature = {.block = "routed_experts", .layer = row}});
      };
      if (r < 2) add(CollectiveKind::kAllReduce, 0, Axis::kEp, stage);
      add(CollectiveKind::kBandTransfer, 1, Axis::kPp, line);
      if (r >= 2) {
        add(CollectiveKind::kAllReduce, 2, Axis::kEp, stage);
        add(CollectiveKind::kAllReduce, 3, Axis::kEp, stage);
      }
    }
  }

  RankSchedule& at(int rank) { return ranks[static_cast<size_t>(rank)]; }
  Meeting& meeting(int rank, size_t index) { return at(rank).meetings[index]; }
  Codes Check() const {
    model::CappedRejections findings;
    CheckSchedules(mesh, ranks, "decode of 2 rows", findings);
    return CodesOf(std::move(findings));
  }

  topology::Mesh mesh;
  std::vector<RankSchedule> ranks;
};

TEST(Preflight, F2_RanksOfDifferentGroupsHaveDifferentLists) {
  const Schedules schedules;
  EXPECT_NE(schedules.ranks[0].meetings.size(),
            schedules.ranks[2].meetings.size());
  EXPECT_EQ(schedules.Check(), Codes{});
}

struct Fault {
  const char* name;
  std::function<void(Schedules&)> inject;
  Codes codes;
};

void PrintTo(const Fault& fault, std::ostream* out) { *out << fault.name; }

const Codes kMismatch = {RejectionCode::kMeetingMismatch};
const Codes kGroup = {RejectionCode::kGroupMismatch};
const Codes kCycle = {RejectionCode::kMeetingCycle};

const Fault kFaults[] = {
    {"F2_TransferWithoutCounterpart",
     [](Schedules& s) {
       auto& list = s.at(3).meetings;
       list.erase(list.begin());
     },
     kMismatch},
    {"F2_ReductionLeftOut",
     [](Schedules& s) { s.at(1).meetings.erase(s.at(1).meetings.begin()); },
     kMismatch},
    {"F2_SwappedOrderInAGroup",
     [](Schedules& s) { std::swap(s.meeting(3, 1), s.meeting(3, 2)); },
     kMismatch},
    // Each pair agrees on its own meetings, and yet rank 0 waits for 1, 1 for
    // 3, 3 for 2 and 2 for 0.
    {"F2_SwappedOrderMakesACycle",
     [](Schedules& s) {
       std::swap(s.meeting(1, 0), s.meeting(1, 1));
       std::swap(s.meeting(3, 0), s.meeting(3, 1));
     },
     kCycle},
    {"F2_OtherKind",
     [](Schedules& s) { s.meeting(2, 1).kind = CollectiveKind::kBroadcast; },
     kMismatch},
    {"F2_OtherRow", [](Schedules& s) { s.meeting(3, 2).row = ScheduleRow(2); },
     kMismatch},
    {"F2_OtherElements", [](Schedules& s) { s.meeting(1, 0).elements += 1; },
     kMismatch},
    {"F2_OtherBytes", [](Schedules& s) { s.meeting(2, 0).bytes = Bytes(1); },
     kMismatch},
    {"F2_OtherDType",
     [](Schedules& s) { s.meeting(2, 0).dtype = tensor::DType::kBF16; },
     kMismatch},
    {"F2_OtherRoot", [](Schedules& s) { s.meeting(3, 1).root = Rank(3); },
     kMismatch},
    {"F2_OtherRankOrder",
     [](Schedules& s) {
       auto& ranks = s.meeting(0, 0).group.ranks;
       std::reverse(ranks.begin(), ranks.end());
     },
     kGroup},
    {"F2_OtherRankOrderOfAllMembers",
     [](Schedules& s) {
       for (const int r : {0, 1}) {
         auto& ranks = s.meeting(r, 0).group.ranks;
         std::reverse(ranks.begin(), ranks.end());
       }
     },
     kGroup},
    {"F2_TransferBackwards",
     [](Schedules& s) {
       for (const int r : {0, 2}) {
         auto& ranks = s.meeting(r, r == 0 ? 1 : 0).group.ranks;
         std::reverse(ranks.begin(), ranks.end());
       }
     },
     kGroup},
    {"F2_TransferToAnotherColumn",
     [](Schedules& s) { s.meeting(0, 1).group.ranks = {Rank(0), Rank(3)}; },
     kGroup},
    {"F2_NotAMember",
     [](Schedules& s) { s.meeting(0, 0).group.ranks = {Rank(2), Rank(3)}; },
     kGroup},
    {"F2_NoSuchRank",
     [](Schedules& s) { s.meeting(0, 0).group.ranks = {Rank(0), Rank(9)}; },
     kGroup},
    {"F2_OtherAxis",
     [](Schedules& s) { s.meeting(0, 0).group.axis = Axis::kTp; }, kGroup},
    {"M3_StaleEpoch",
     [](Schedules& s) { s.meeting(3, 2).group.epoch -= 1; },
     {RejectionCode::kEpochStale}},
    {"F1_AnotherBlock",
     [](Schedules& s) { s.at(3).blocks[1].signature.rows = 7; },
     {RejectionCode::kSignatureMismatch}},
};

class PreflightFault : public ::testing::TestWithParam<Fault> {};

TEST_P(PreflightFault, IsRefused) {
  Schedules schedules;
  GetParam().inject(schedules);
  EXPECT_EQ(schedules.Check(), GetParam().codes);
}

INSTANTIATE_TEST_SUITE_P(Table, PreflightFault, ::testing::ValuesIn(kFaults),
                         [](const auto& info) {
                           return std::string(info.param.name);
                         });

// Another value of a field, whatever its type.
void Change(Digest& value) { value = Digest::Of(value.Hex()); }
void Change(int64_t& value) { value += 1; }
void Change(std::string& value) { value += '!'; }
void Change(std::string_view& value) { value = "another"; }

TEST(Preflight, F1_EveryFieldOfOneRankIsRefusedByName) {
  int fields = 0;
  const auto check = [&](const auto& field) {
    ++fields;
    Schedules schedules;
    SignedBlock& block = schedules.at(3).blocks[1];
    Change(block.signature.*field.value);
    model::CappedRejections findings;
    CheckSchedules(schedules.mesh, schedules.ranks, "decode", findings);
    RejectionList list;
    findings.FlushInto("mesh", &list);
    ASSERT_FALSE(list.empty()) << field.name;
    const Error error = list.Take().value();
    const auto& rejections = std::get<Rejections>(error).list();
    ASSERT_EQ(rejections.size(), 1u) << field.name;
    const Rejection& rejection = rejections.front();
    EXPECT_EQ(rejection.code, RejectionCode::kSignatureMismatch);
    EXPECT_NE(
        rejection.message.find("the " + std::string(field.name) + " of a"),
        std::string::npos)
        << rejection.message;
    EXPECT_EQ(rejection.where,
              "rank 3, decode, step " + std::to_string(block.step));
    EXPECT_NE(rejection.got, rejection.want);
  };
  std::apply([&](const auto&... rows) { (check(rows), ...); },
             kSignatureFields);
  EXPECT_EQ(fields, static_cast<int>(kNumSignatureFields));
}

TEST(Preflight, F1_TheTextHasEveryField) {
  const BlockSignature signature = {.block = "mixer", .rows = 3};
  const std::string text = ToText(signature);
  std::apply(
      [&](const auto&... rows) {
        const auto has = [&](std::string_view name) {
          return text.find(std::string(name) + ": ") != std::string::npos;
        };
        EXPECT_TRUE((has(rows.name) && ...)) << text;
      },
      kSignatureFields);
  BlockSignature other = signature;
  other.tile_rows = 8;
  EXPECT_NE(ToText(other), text);
}

struct Pair {
  int a;
  std::string b;
};
constexpr std::tuple kOneRow = {SignatureField{"rows", &BlockSignature::rows}};
constexpr std::tuple kTwice = {SignatureField{"rows", &BlockSignature::rows},
                               SignatureField{"B", &BlockSignature::rows}};
static_assert(AggregateArity<Pair>() == 2);
static_assert(AreDistinctMembers(kOneRow) && !AreDistinctMembers(kTwice));

Codes DeviceCodes(std::vector<topology::DeviceIdentity> devices,
                  bool emulated) {
  model::CappedRejections findings;
  CheckDevices(devices, emulated, findings);
  return CodesOf(std::move(findings));
}

TEST(Preflight, M4_ADeviceIsOfOneRank) {
  const topology::DeviceIdentity a = {.backend = "cpu", .uuid = "m/0"};
  const topology::DeviceIdentity b = {.backend = "cpu", .uuid = "m/1"};
  const topology::DeviceIdentity gpu = {.backend = "gpu", .uuid = "GPU-1"};
  const Codes repeated = {RejectionCode::kDeviceRepeated};
  EXPECT_EQ(DeviceCodes({a, b, gpu}, false), Codes{});
  EXPECT_EQ(DeviceCodes({a, b, a}, false), repeated);
  EXPECT_EQ(DeviceCodes({a, b, a}, true), repeated);
  EXPECT_EQ(DeviceCodes({gpu, gpu}, false), repeated);
  EXPECT_EQ(DeviceCodes({gpu, gpu}, true), Codes{});
}

// It runs at every load: 8 ranks, 700 collectives, 10 shapes.
TEST(Preflight, F2_LongSchedulesAreComparedInOrder) {
  const topology::Mesh mesh = MakeMesh("tp=8");
  std::vector<RankSchedule> ranks(8);
  for (RankSchedule& rank : ranks) {
    for (int row = 0; row < 700; ++row) {
      rank.meetings.push_back(Meet(mesh, CollectiveKind::kAllReduce, row,
                                   Axis::kTp, mesh.Group(Axis::kTp, Rank(0))));
      rank.meetings.back().step = static_cast<size_t>(row);
      rank.blocks.push_back({.step = static_cast<size_t>(row),
                             .signature = {.block = "mixer", .layer = row}});
    }
  }
  const auto codes = [&] {
    model::CappedRejections findings;
    CheckSchedules(mesh, ranks, "decode", findings);
    return CodesOf(std::move(findings));
  };
  for (int shape = 0; shape < 10; ++shape) EXPECT_EQ(codes(), Codes{});
  ranks[7].blocks[699].signature.lanes = 1;
  EXPECT_EQ(codes(), Codes{RejectionCode::kSignatureMismatch});
  std::swap(ranks[5].meetings[698], ranks[5].meetings[699]);
  EXPECT_EQ(codes(), kMismatch);
}

}  // namespace
}  // namespace signet::exec
