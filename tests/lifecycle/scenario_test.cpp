// E4: the whole life of a model and its session, three times over in one
// process, on a mesh of one and of four; memory returns to where it was.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lifecycle/ledger.h"
#include "lifecycle/served_model.h"

namespace signet::testing {
namespace {

constexpr int kRounds = 3;

class Scenario : public ::testing::TestWithParam<const char*> {
 protected:
  // A prompt of three chunks, and how far it gets.
  static std::vector<Request> LongPrompt(int64_t max_tokens) {
    std::vector<Request> requests = LifecycleRequests(1, max_tokens);
    requests[0].prompt = std::vector<int32_t>(20, 40);
    return requests;
  }

  Ledger ledger_;
  uint64_t per_round_ = 0;
};

TEST_P(Scenario, E4_EveryStageThreeTimes) {
  Engine engine = ValueOrDie(MakeEngine({.threads = 4}, ledger_.Factory()));
  const Plan plan = LifecyclePlan(GetParam());
  const std::vector<Request> requests = LifecycleRequests(3, 5);
  std::vector<std::vector<int32_t>> reference;
  uint64_t allocations = 0;
  for (int round = 0; round < kRounds; ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    EXPECT_EQ(ledger_.live_devices(), 0);
    // A load that fails, and its retry.
    ledger_.FailAt(0, 2);
    EXPECT_FALSE(engine.Load(plan, {}).has_value());
    ledger_.Count();
    EXPECT_EQ(ledger_.live_devices(), 0);
    Model model = ValueOrDie(engine.Load(plan, {}));
    {
      Session session = ValueOrDie(Session::Make(model, 2));
      EXPECT_FALSE(model.Unload().has_value()) << "a session is alive";

      // Prefill alone, then generation: more requests than slots.
      EXPECT_EQ(Answer(session, LongPrompt(1))[0].size(), 1u);
      const auto ids = Answer(session, requests);
      if (reference.empty()) reference = ids;
      EXPECT_EQ(ids, reference);
      session.Reset();
      EXPECT_EQ(Answer(session, requests), reference);

      // Aborted inside the first chunk of a prompt.
      HearingSink in_prefill(1);
      ledger_.CallAt(0, 5, [&] { session.Abort(); });
      ValueOrDie(session.Generate(LongPrompt(4), in_prefill));
      EXPECT_EQ(ledger_.struck(), "launch");
      ledger_.Count();
      EXPECT_EQ(in_prefill.heard[0].finish, Finish::kAborted);
      EXPECT_EQ(in_prefill.heard[0].ends, 1);
      EXPECT_TRUE(in_prefill.heard[0].ids.empty());
      session.Reset();
      EXPECT_EQ(Answer(session, requests), reference);

      // Aborted while decoding: the waiting request never begins.
      HearingSink in_decode(3);
      int tokens = 0;
      in_decode.on_token = [&] {
        if (++tokens == 4) session.Abort();
      };
      ValueOrDie(session.Generate(requests, in_decode));
      for (const Heard& heard : in_decode.heard) {
        EXPECT_EQ(heard.ends, 1);
        EXPECT_EQ(heard.finish, Finish::kAborted);
      }
      EXPECT_TRUE(in_decode.heard[2].ids.empty());
      session.Reset();
      EXPECT_EQ(Answer(session, requests), reference);

      // A step that fails, then the same again.
      HearingSink failing(3);
      ledger_.FailAt(0, 100);
      ValueOrDie(session.Generate(requests, failing));
      EXPECT_NE(ledger_.struck(), "");
      ledger_.Count();
      for (const Heard& heard : failing.heard) {
        EXPECT_EQ(heard.ends, 1);
        EXPECT_EQ(heard.finish, Finish::kError);
      }
      session.Reset();
      EXPECT_EQ(Answer(session, requests), reference);
    }
    ValueOrDie(model.Unload());
    ValueOrDie(model.Unload());
    EXPECT_FALSE(Session::Make(model, 1).has_value());
    // Reloaded beside the handle of the unloaded one.
    {
      const Model again = ValueOrDie(engine.Load(plan, {}));
      Session session = ValueOrDie(Session::Make(again, 2));
      EXPECT_EQ(Answer(session, requests), reference);
    }
    EXPECT_TRUE(ledger_.balanced());
    // As many reservations in every round.
    const uint64_t before = allocations;
    allocations = ledger_.allocations();
    if (round >= 2) {
      EXPECT_EQ(allocations - before, per_round_);
    }
    per_round_ = allocations - before;
  }
}

INSTANTIATE_TEST_SUITE_P(Meshes, Scenario, ::testing::Values("single", "ep=4"),
                         [](const auto& info) {
                           return info.index == 0 ? "single" : "ep4";
                         });

}  // namespace
}  // namespace signet::testing
