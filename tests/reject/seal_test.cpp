// What seals, what a sealed program tells, and what becomes of damaged text.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <random>

#include "lower/lower.h"
#include "model/checkpoint_testing.h"
#include "tests/reject/one_edit.h"

namespace signet::testing {
namespace {

using step::ProgramDraft;

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

nlohmann::json LayersOf(nlohmann::json config, int layers) {
  config["num_hidden_layers"] = layers;
  config["layer_types"] = nlohmann::json::array();
  for (int i = 0; i < layers; ++i) {
    config["layer_types"].push_back(i % 4 == 3 ? "full_attention"
                                               : "linear_attention");
  }
  return config;
}

TEST(Seal, EveryShapeOfManyPlansSeals) {
  using model::Family;
  const nlohmann::json routed = model::testing::TinyConfig(Family::kQwen35Moe);
  const nlohmann::json dense = model::testing::TinyConfig(Family::kQwen35);
  std::vector<nlohmann::json> configs = {routed, dense, LayersOf(routed, 5),
                                         LayersOf(dense, 5)};
  for (const int experts : {1, 3, 12, 64}) {
    nlohmann::json config = routed;
    config["num_experts"] = experts;
    config["num_experts_per_tok"] = std::min(experts, 3);
    configs.push_back(config);
  }
  nlohmann::json tied = routed;
  tied["tie_word_embeddings"] = true;
  configs.push_back(tied);
  std::vector<plan::PlanOptions> many(4);
  many[0].context = 100;
  many[1] = {.context = 64, .batch = 5, .kv_dtype = tensor::DType::kBF16};
  many[2] = {
      .context = 64, .prefill_chunks = {1, 2, 7, 64}, .all_logits = true};
  many[3] = {.context = 64, .batch = 33, .page_tokens = 1};
  int sealed_programs = 0;
  for (const nlohmann::json& config : configs) {
    for (const plan::PlanOptions& options : many) {
      const auto plan = MakePlan(config, options);
      for (const plan::ProgramShape& shape : plan->shapes()) {
        const auto draft = lower::LowerModel(*plan, shape, Rank(0));
        ASSERT_TRUE(draft.has_value()) << Describe(draft.error());
        const auto sealed = step::Seal(*draft, *plan);
        ASSERT_TRUE(sealed.has_value())
            << Describe(sealed.error()) << "\n"
            << config.dump() << "\n"
            << Name(shape.kind) << " " << shape.rows;
        ++sealed_programs;
      }
    }
  }
  EXPECT_GT(sealed_programs, 100);
}

// The flagship has forty layers; sealing is part of every load.
TEST(Seal, FortyLayersSealInMilliseconds) {
  const auto plan = MakePlan(
      LayersOf(model::testing::TinyConfig(model::Family::kQwen35Moe), 40),
      {.context = 64});
  for (const plan::ProgramShape& shape : plan->shapes()) {
    ProgramDraft draft = *lower::LowerModel(*plan, shape, Rank(0));
    const size_t buffers = draft.buffers.size();
    const auto start = std::chrono::steady_clock::now();
    const auto sealed = step::Seal(std::move(draft), *plan);
    const std::chrono::duration<double, std::milli> took =
        std::chrono::steady_clock::now() - start;
    ASSERT_TRUE(sealed.has_value()) << Describe(sealed.error());
    std::cout << Name(shape.kind) << " " << shape.rows << ": "
              << sealed->steps().size() << " steps, " << buffers << " buffers, "
              << took.count() << " ms\n";
    // Wide, for sanitizers and busy machines: nothing here is quadratic.
    EXPECT_LT(took.count(), 500);
  }
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
