// What may run as one launch on a GPU lies side by side: no two buffers that
// the steps of a launch group name share a byte. And the groups hold what the
// patterns of exec/fuse.h ask for.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/memory_class.h"
#include "lower/launch_groups.h"
#include "step/operands.h"
#include "tests/reject/sample_programs.h"

namespace signet::testing {
namespace {

using lower::LaunchGroup;
using lower::LaunchGroupsOf;
using step::BufferDecl;
using step::ProgramDraft;
using ::testing::ElementsAre;

constexpr Sample kOnGpus[] = {Sample::kOnGpu, Sample::kRounded};

std::string_view KindOf(const step::Step& step) {
  return std::visit([](const auto& s) { return s.kName; }, step);
}

bool Overlap(const BufferDecl& a, const BufferDecl& b) {
  return a.arena == b.arena &&
         a.offset_bytes < b.offset_bytes + b.size.value() &&
         b.offset_bytes < a.offset_bytes + a.size.value();
}

// Of steps [first, last], but for weights.
std::vector<BufferId> BuffersOf(const ProgramDraft& draft, int64_t first,
                                int64_t last) {
  std::set<int32_t> seen;
  for (int64_t i = first; i <= last; ++i) {
    step::ForEachOperand(draft.steps[static_cast<size_t>(i)],
                         [&](std::string_view, BufferId id, step::Access) {
                           if (IsOfWeights(draft.buffers[id].arena)) return;
                           seen.insert(id.value());
                         });
  }
  std::vector<BufferId> buffers;
  for (const int32_t id : seen) buffers.emplace_back(id);
  return buffers;
}

// The kinds of each group's steps, in order.
std::vector<std::string> GroupTexts(const ProgramDraft& draft) {
  const std::vector<LaunchGroup> groups = LaunchGroupsOf(draft.steps);
  std::vector<std::string> texts;
  for (size_t i = 0; i < draft.steps.size(); ++i) {
    if (groups[i].first == static_cast<int64_t>(i)) {
      texts.emplace_back();
    } else {
      texts.back() += ' ';
    }
    texts.back() += KindOf(draft.steps[i]);
  }
  return texts;
}

class LaunchLayout : public ::testing::TestWithParam<Sample> {};

TEST_P(LaunchLayout, BuffersOfALaunchShareNoByte) {
  const ProgramDraft draft = DraftOf(GetParam());
  const std::vector<LaunchGroup> groups = LaunchGroupsOf(draft.steps);
  int64_t shared_launches = 0;
  for (size_t i = 0; i < groups.size();
       i = static_cast<size_t>(groups[i].last) + 1) {
    ASSERT_EQ(groups[i].first, static_cast<int64_t>(i));
    shared_launches += groups[i].last > groups[i].first ? 1 : 0;
    const std::vector<BufferId> buffers =
        BuffersOf(draft, groups[i].first, groups[i].last);
    for (size_t a = 0; a < buffers.size(); ++a) {
      for (size_t b = a + 1; b < buffers.size(); ++b) {
        EXPECT_FALSE(
            Overlap(draft.buffers[buffers[a]], draft.buffers[buffers[b]]))
            << draft.buffers[buffers[a]].name << " and "
            << draft.buffers[buffers[b]].name << ", step " << i;
      }
    }
  }
  EXPECT_GT(shared_launches, 5);
}

TEST_P(LaunchLayout, EveryStepIsInOneGroup) {
  const ProgramDraft draft = DraftOf(GetParam());
  const std::vector<LaunchGroup> groups = LaunchGroupsOf(draft.steps);
  ASSERT_EQ(groups.size(), draft.steps.size());
  for (size_t i = 0; i < groups.size(); ++i) {
    EXPECT_LE(groups[i].first, static_cast<int64_t>(i));
    EXPECT_GE(groups[i].last, static_cast<int64_t>(i));
    if (i == 0) continue;
    const bool same = groups[i].first == groups[i - 1].first;
    EXPECT_EQ(groups[i].first,
              same ? groups[i - 1].first : groups[i - 1].last + 1);
  }
}

INSTANTIATE_TEST_SUITE_P(OnGpus, LaunchLayout, ::testing::ValuesIn(kOnGpus),
                         [](const auto& info) {
                           return std::string(Name(info.param));
                         });

TEST(LaunchGroups, ADecodeHasThoseOfTheFusedLaunches) {
  EXPECT_THAT(
      GroupTexts(DraftOf(Sample::kOnGpu)),
      ElementsAre("embed",
                  // A DeltaNet layer.
                  "norm projection projection projection projection",
                  "conv delta_rule gated_norm", "projection residual_add",
                  "norm projection projection projection projection activation "
                  "moe_route indexed_moe_gemv moe_activation indexed_moe_gemv "
                  "projection moe_combine all_reduce gated_add residual_add",
                  // A layer of full attention.
                  "norm projection projection projection",
                  "qk_norm_rope kv_append attention", "projection residual_add",
                  "norm projection projection projection projection activation "
                  "moe_route indexed_moe_gemv moe_activation indexed_moe_gemv "
                  "projection moe_combine all_reduce gated_add residual_add",
                  "norm logits sample"));
}

// The kinds of the first and of the last step of every route's group.
std::vector<std::string> RoutedGroups(const ProgramDraft& draft) {
  const std::vector<LaunchGroup> groups = LaunchGroupsOf(draft.steps);
  std::vector<std::string> texts;
  for (size_t i = 0; i < draft.steps.size(); ++i) {
    if (!std::holds_alternative<step::MoeRoute>(draft.steps[i])) continue;
    const auto kind = [&](int64_t step) {
      return std::string(KindOf(draft.steps[static_cast<size_t>(step)]));
    };
    texts.push_back(kind(groups[i].first) + " to " + kind(groups[i].last));
  }
  return texts;
}

TEST(LaunchGroups, ARouteBeginsOneUnlessItsExpertsAreIndexed) {
  const std::vector<std::string> whole = {"norm to residual_add",
                                          "norm to residual_add"};
  EXPECT_EQ(RoutedGroups(DraftOf(Sample::kOnGpu)), whole);
  EXPECT_EQ(RoutedGroups(DraftOf(Sample::kIndexed)), whole);
  const std::vector<std::string> parts = {"moe_route to moe_activation",
                                          "moe_route to moe_activation"};
  EXPECT_EQ(RoutedGroups(DraftOf(Sample::kRounded)), parts);
  EXPECT_EQ(RoutedGroups(DraftOf(Sample::kGrouped)), parts);
}

TEST(LaunchGroups, ARouteThatNothingFollowsBeginsOne) {
  const auto first_of_last = [](const std::vector<step::Step>& steps) {
    return LaunchGroupsOf(steps).back().first;
  };
  EXPECT_EQ(first_of_last({step::Norm{}, step::MoeRoute{}}), 1);
  EXPECT_EQ(first_of_last({step::Norm{}, step::MoeRoute{}, step::Norm{}}), 2);
  EXPECT_EQ(first_of_last({step::Norm{}, step::MoeRoute{}, step::MoeScatter{}}),
            1);
  EXPECT_EQ(
      first_of_last({step::Norm{}, step::MoeRoute{}, step::IndexedMoeGemv{}}),
      0);
}

TEST(LaunchGroups, AChunkHasThoseOfTheFusedLaunches) {
  EXPECT_THAT(
      GroupTexts(DraftOf(Sample::kRounded)),
      ElementsAre(
          "embed",
          // A DeltaNet layer.
          "norm round", "projection projection projection projection",
          "conv delta_rule gated_norm round", "projection",
          "residual_add norm round",
          "projection projection projection projection activation",
          "projection",
          "moe_route moe_scatter grouped_moe_gemm moe_gate_up_unscatter "
          "moe_activation",
          "grouped_moe_gemm",
          "moe_combine all_reduce gated_add residual_add norm round",
          // A layer of full attention.
          "projection projection projection",
          "qk_norm_rope kv_append attention round", "projection",
          "residual_add norm round",
          "projection projection projection projection activation",
          "projection",
          "moe_route moe_scatter grouped_moe_gemm moe_gate_up_unscatter "
          "moe_activation",
          "grouped_moe_gemm",
          "moe_combine all_reduce gated_add residual_add norm round",
          "logits sample"));
}

}  // namespace
}  // namespace signet::testing
