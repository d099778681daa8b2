// What seals, what a sealed program tells, and what becomes of damaged text.

#include <gtest/gtest.h>

#include <chrono>
#include <random>

#include "tests/reject/one_edit.h"

namespace signet::testing {
namespace {

using step::ProgramDraft;

constexpr Sample kEverySample[] = {Sample::kIndexed, Sample::kGrouped,
                                   Sample::kDense, Sample::kBlock,
                                   Sample::kPrecomputedBlock};

TEST(Seal, S7_ASealedProgramIsItsDraft) {
  for (const Sample sample : kEverySample) {
    const ProgramDraft draft = DraftOf(sample);
    const auto sealed = step::Seal(draft, PlanOf(sample));
    ASSERT_TRUE(sealed.has_value()) << Describe(sealed.error());
    EXPECT_EQ(sealed->contract(), PlanOf(sample).contract_id());
    EXPECT_EQ(sealed->text(), ToText(draft));
    EXPECT_EQ(sealed->id(), Digest::Of(sealed->text()));
    EXPECT_EQ(sealed->rank(), draft.rank);
    EXPECT_EQ(sealed->recipe(), draft.recipe);
    EXPECT_EQ(sealed->shape(), draft.shape);
    EXPECT_EQ(sealed->live(), draft.live);
    EXPECT_EQ(sealed->arena_bytes(), draft.arena_bytes);
    EXPECT_EQ(sealed->steps().size(), draft.steps.size());
    EXPECT_EQ(sealed->FindIo(step::IoRole::kLive), draft.live);
    EXPECT_EQ(sealed->FindIo(step::IoRole::kRouteIds).has_value(),
              sample == Sample::kPrecomputedBlock);
  }
}

TEST(Seal, P6_TheTextOfASealedProgramSealsToTheSameId) {
  for (const Sample sample : kEverySample) {
    const plan::ModelPlan& plan = PlanOf(sample);
    const auto sealed = step::Seal(DraftOf(sample), plan);
    ASSERT_TRUE(sealed.has_value());
    const auto parsed = step::ParseProgram(sealed->text(), plan.mesh().epoch());
    ASSERT_TRUE(parsed.has_value()) << Describe(parsed.error());
    const auto again = step::Seal(*parsed, plan);
    ASSERT_TRUE(again.has_value()) << Describe(again.error());
    EXPECT_EQ(again->id(), sealed->id());
  }
}

TEST(Seal, M3_TextReadUnderAnotherEpochDoesNotSeal) {
  const plan::ModelPlan& plan = PlanOf(Sample::kIndexed);
  const auto parsed = step::ParseProgram(ToText(DraftOf(Sample::kIndexed)),
                                         plan.mesh().epoch() + 1);
  ASSERT_TRUE(parsed.has_value());
  EXPECT_EQ(SealCodes(*parsed, plan), Codes{RejectionCode::kEpochStale});
}

TEST(Seal, EveryReasonOfAPhaseIsGivenAndNoneOfTheNext) {
  ProgramDraft draft = DraftOf(Sample::kIndexed);
  Buffer(draft, "l0.x").dtype = tensor::DType::kI32;  // S2
  Nth<step::Norm>(draft, 1).eps = 1.0f;               // S2
  Buffer(draft, "l1.x").rank = Rank(1);               // S6
  EXPECT_EQ(
      SealCodes(draft, PlanOf(Sample::kIndexed)),
      (Codes{RejectionCode::kOperandDType, RejectionCode::kStepAttribute}));
}

// Changes one byte, word or line of the text.
std::string Damage(std::string text, std::mt19937_64& random) {
  const auto below = [&](size_t n) {
    return static_cast<size_t>(random() % n);
  };
  const auto line = [&] {
    const size_t at = below(text.size());
    const size_t begin = text.rfind('\n', at);
    const size_t first = begin == text.npos ? 0 : begin + 1;
    return std::pair(first, text.find('\n', first) + 1 - first);
  };
  switch (below(7)) {
    case 0:
      text[below(text.size())] = static_cast<char>(random());
      break;
    case 1: {  // a digit for a digit
      size_t at = below(text.size());
      while (text[at] < '0' || text[at] > '9') at = below(text.size());
      text[at] = static_cast<char>('0' + below(10));
      break;
    }
    case 2: {
      const auto [begin, size] = line();
      text.erase(begin, size);
      break;
    }
    case 3: {
      const auto [begin, size] = line();
      text.insert(begin, text.substr(begin, size));
      break;
    }
    case 4: {  // two lines change places
      const auto [a, a_size] = line();
      const std::string taken = text.substr(a, a_size);
      text.erase(a, a_size);
      const auto [b, b_size] = line();
      text.insert(b, taken);
      break;
    }
    case 5: {  // a value for a value
      const auto value = [&] {
        size_t at = text.find('=', below(text.size()));
        if (at == text.npos) at = text.find('=');
        const size_t end = text.find_first_of(" \n", at);
        return std::pair(at + 1, end - at - 1);
      };
      const auto [from, from_size] = value();
      const std::string taken = text.substr(from, from_size);
      const auto [to, to_size] = value();
      text.replace(to, to_size, taken);
      break;
    }
    default: {  // a cut
      text.resize(below(text.size()));
      break;
    }
  }
  return text;
}

TEST(Seal, OneEditOfTheTextIsRefusedOrAnotherProgram) {
  const uint64_t seed = std::random_device{}();
  std::cout << "seed " << seed << '\n';
  std::mt19937_64 random(seed);
  std::vector<std::string> texts;
  std::vector<Digest> ids;
  for (const Sample sample : kEverySample) {
    const auto sealed = step::Seal(DraftOf(sample), PlanOf(sample));
    texts.push_back(sealed->text());
    ids.push_back(sealed->id());
  }
  int parsed_runs = 0;
  int sealed_runs = 0;
  for (int run = 0; run < 2000; ++run) {
    const auto which = static_cast<size_t>(run) % texts.size();
    const plan::ModelPlan& plan = PlanOf(kEverySample[which]);
    const std::string text = Damage(texts[which], random);
    const auto parsed = step::ParseProgram(text, plan.mesh().epoch());
    if (!parsed) {
      ASSERT_TRUE(std::get<Rejections>(parsed.error())
                      .Has(RejectionCode::kProgramTextInvalid));
      continue;
    }
    ++parsed_runs;
    ASSERT_EQ(ToText(*parsed), text);
    const auto sealed = step::Seal(*parsed, plan);
    if (!sealed) continue;
    ++sealed_runs;
    EXPECT_EQ(sealed->id() == ids[which], text == texts[which])
        << "seed " << seed << " run " << run;
  }
  std::cout << parsed_runs << " parsed, " << sealed_runs << " sealed\n";
  EXPECT_GT(parsed_runs, 100);
}

}  // namespace
}  // namespace signet::testing
