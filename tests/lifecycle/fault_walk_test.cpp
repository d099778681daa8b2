// T5: fails every fault point of every rank in turn, phase by phase, and looks
// at what is left: nothing held, the neighbour unchanged, an immediate retry
// with the same answer, one terminal event a request. Then aborts at each of
// them instead. Prints its points.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lifecycle/ledger.h"
#include "lifecycle/served_model.h"

namespace signet::testing {
namespace {

using Ids = std::vector<std::vector<int32_t>>;

// Every point of the first load is failed; of the loads that repeat it, as
// many as show that they recover alike.
constexpr int64_t kRepeatStride = 4;

class FaultWalk : public ::testing::TestWithParam<const char*> {
 protected:
  FaultWalk()
      : plan_(LifecyclePlan(GetParam())),
        engine_(ValueOrDie(MakeEngine({.threads = 1}, ledger_.Factory()))),
        requests_(LifecycleRequests(2, 3)) {
    // The neighbour, which no fault may reach.
    ledger_.Watch(false);
    neighbour_model_.emplace(
        ValueOrDie(engine_.Load(LifecyclePlan("single"), {})));
    neighbour_.emplace(ValueOrDie(Session::Make(*neighbour_model_, 2)));
    neighbour_says_ = Answer(*neighbour_, requests_);
    base_devices_ = ledger_.live_devices();
    ledger_.Watch(true);
    reference_ = Serve();
  }

  Result<Model> Load() { return engine_.Load(plan_, {}); }
  Model LoadOrDie() { return ValueOrDie(Load()); }

  // A model loaded, asked and gone again.
  Ids Serve() {
    const Model model = LoadOrDie();
    Session session = ValueOrDie(Session::Make(model, 2));
    return Answer(session, requests_);
  }

  void ExpectNeighbourUnchanged() {
    neighbour_->Reset();
    EXPECT_EQ(Answer(*neighbour_, requests_), neighbour_says_);
  }
  void ExpectNothingHeld(int devices) {
    EXPECT_EQ(ledger_.live_devices(), devices);
    EXPECT_TRUE(ledger_.balanced());
  }

  // What happens at the point of a rank.
  using Arm = std::function<void(int rank, int64_t index)>;

  // Counts the points of `act`, then fails each `stride`-th of every rank, or
  // does what `arm` sets there, and calls `check`.
  void Walk(const char* phase, int64_t stride, const std::function<void()>& act,
            const std::function<void()>& check, const Arm& arm = {}) {
    ledger_.Count();
    act();
    std::array<int64_t, Ledger::kMaxRanks> points = {};
    int64_t total = 0;
    for (int r = 0; r < Ledger::kMaxRanks; ++r) {
      points[static_cast<size_t>(r)] = ledger_.passed(r);
      total += ledger_.passed(r);
    }
    const std::string kinds = ledger_.Kinds();
    ledger_.Count();
    check();
    int64_t walked = 0;
    for (int r = 0; r < Ledger::kMaxRanks; ++r) {
      for (int64_t i = 0; i < points[static_cast<size_t>(r)]; i += stride) {
        SCOPED_TRACE(std::string(phase) + ", rank " + std::to_string(r) +
                     ", point " + std::to_string(i));
        if (arm) {
          arm(r, i);
        } else {
          ledger_.FailAt(r, i);
        }
        act();
        EXPECT_NE(ledger_.struck(), "");
        ledger_.Count();
        check();
        ++walked;
        if (HasFailure()) return;
      }
    }
    std::printf("%-7s %-16s %5lld points, %5lld struck in turn (%s)\n",
                GetParam(), phase, static_cast<long long>(total),
                static_cast<long long>(walked), kinds.c_str());
    points_ += total;
    walked_ += walked;
  }

  Ledger ledger_;
  const Plan plan_;
  Engine engine_;
  const std::vector<Request> requests_;
  std::optional<Model> neighbour_model_;
  std::optional<Session> neighbour_;
  Ids neighbour_says_;
  Ids reference_;
  int base_devices_ = 0;
  int64_t points_ = 0;
  int64_t walked_ = 0;
};

TEST_P(FaultWalk, T5_EveryPointOfEveryPhaseIsSurvived) {
  // Load, and the immediate retry.
  std::optional<Result<Model>> loaded;
  const auto check_load = [&] {
    loaded.reset();
    ExpectNothingHeld(base_devices_);
    ExpectNeighbourUnchanged();
    EXPECT_EQ(Serve(), reference_);
    ExpectNothingHeld(base_devices_);
  };
  const auto load = [&] {
    loaded.emplace(Load());
    EXPECT_EQ(loaded->has_value(), ledger_.struck().empty());
  };
  Walk("load", 1, load, check_load);

  // A load after an unload of the same plan.
  std::optional<Model> served(LoadOrDie());
  Walk(
      "reload", kRepeatStride,
      [&] {
        if (served) ValueOrDie(served->Unload());
        served.reset();
        load();
      },
      [&] {
        check_load();
        served.emplace(LoadOrDie());
        ledger_.Count();
      });
  served.reset();

  // The retry of a failed load fails too; the next one works.
  Walk(
      "retry", kRepeatStride,
      [&] {
        const auto [rank, index] = ledger_.armed();
        ledger_.FailAt(0, 3);
        EXPECT_FALSE(Load().has_value());
        ledger_.FailAt(rank, index);
        load();
      },
      check_load);

  // While another model is answering.
  Walk(
      "staged", kRepeatStride,
      [&] {
        HearingSink sink(requests_.size());
        bool staged = false;
        sink.on_token = [&] {
          if (!staged) load();
          staged = true;
        };
        neighbour_->Reset();
        ValueOrDie(neighbour_->Generate(requests_, sink));
        for (size_t i = 0; i < requests_.size(); ++i) {
          EXPECT_EQ(sink.heard[i].ids, neighbour_says_[i]);
          EXPECT_EQ(sink.heard[i].ends, 1);
        }
      },
      check_load);

  std::optional<Model> model(LoadOrDie());
  const int loaded_devices = ledger_.live_devices();
  std::optional<Result<Session>> made;
  Walk(
      "session", 1,
      [&] {
        made.emplace(Session::Make(*model, 2));
        EXPECT_EQ(made->has_value(), ledger_.struck().empty());
      },
      [&] {
        made.reset();
        ExpectNothingHeld(loaded_devices);
        ExpectNeighbourUnchanged();
        Session session = ValueOrDie(Session::Make(*model, 2));
        EXPECT_EQ(Answer(session, requests_), reference_);
      });

  std::optional<Session> session(ValueOrDie(Session::Make(*model, 2)));
  const auto check_session = [&] {
    ExpectNeighbourUnchanged();
    session->Reset();
    EXPECT_EQ(Answer(*session, requests_), reference_);
    session->Reset();
    EXPECT_TRUE(ledger_.balanced());
  };
  // What the requests heard when a step failed: all of them, once.
  const auto expect_ended = [&](const HearingSink& sink) {
    if (ledger_.struck().empty()) return;
    for (const Heard& heard : sink.heard) {
      EXPECT_EQ(heard.ends, 1);
      EXPECT_EQ(heard.finish, Finish::kError);
    }
    HearingSink refused(1);
    const auto again =
        session->Generate(std::span(requests_).first(1), refused);
    EXPECT_FALSE(again.has_value());
    EXPECT_EQ(refused.heard[0].ends, 0);
  };
  const std::vector<Request> one = LifecycleRequests(1, 1);
  Walk(
      "prefill", 1,
      [&] {
        HearingSink sink(1);
        ValueOrDie(session->Generate(one, sink));
        expect_ended(sink);
      },
      check_session);

  // Two requests that have both been prefilled: armed from there on.
  const std::vector<Request> two = LifecycleRequests(2, 2);
  Walk(
      "decode", 1,
      [&] {
        HearingSink sink(2);
        int tokens = 0;
        const auto [rank, index] = ledger_.armed();
        ledger_.Count();
        sink.on_token = [&, rank = rank, index = index] {
          if (++tokens == 2) ledger_.FailAt(rank, index);
        };
        ValueOrDie(session->Generate(two, sink));
        expect_ended(sink);
      },
      check_session);

  // What takes nothing from the world cannot fail.
  ledger_.Count();
  session->Reset();
  EXPECT_EQ(ledger_.Kinds(), "none");
  session.reset();
  ValueOrDie(model->Unload());
  ValueOrDie(model->Unload());
  EXPECT_EQ(ledger_.Kinds(), "none");
  std::printf("%-7s reset, unload: 0 points\n", GetParam());
  model.reset();
  ExpectNothingHeld(base_devices_);
  ExpectNeighbourUnchanged();

  neighbour_.reset();
  neighbour_model_.reset();
  ExpectNothingHeld(0);
  EXPECT_GT(ledger_.allocations(), 0u);
  std::printf("%-7s in all   %5lld points, %5lld struck in turn\n", GetParam(),
              static_cast<long long>(points_), static_cast<long long>(walked_));
  EXPECT_GE(walked_, 200);
}

// X8: an abort at every point of a prompt and of the decoding after it ends
// each request once, and a reset session gives the bits of a fresh one.
TEST_P(FaultWalk, T5_AnAbortAtEveryPointIsSurvived) {
  const Model model = LoadOrDie();
  Session session = ValueOrDie(Session::Make(model, 2));
  const Arm abort = [&](int rank, int64_t index) {
    ledger_.CallAt(rank, index, [&] { session.Abort(); });
  };
  const auto check = [&] {
    ExpectNeighbourUnchanged();
    session.Reset();
    EXPECT_EQ(Answer(session, requests_), reference_);
    session.Reset();
    EXPECT_TRUE(ledger_.balanced());
  };
  int aborted = 0;
  // The ids that were heard are the first of those of a run to the end.
  const auto expect_cut_short = [&](const HearingSink& sink, const Ids& whole) {
    for (size_t i = 0; i < whole.size(); ++i) {
      const Heard& heard = sink.heard[i];
      EXPECT_EQ(heard.ends, 1);
      EXPECT_NE(heard.finish, Finish::kError);
      EXPECT_NE(heard.finish, Finish::kStop);
      if (heard.finish == Finish::kAborted) ++aborted;
      ASSERT_LE(heard.ids.size(), whole[i].size());
      EXPECT_TRUE(
          std::equal(heard.ids.begin(), heard.ids.end(), whole[i].begin()));
    }
  };
  // A prompt of several chunks.
  std::vector<Request> one = LifecycleRequests(1, 1);
  one[0].prompt = std::vector<int32_t>(20, 40);
  const Ids first = Answer(session, one);
  session.Reset();
  Walk(
      "abort in prefill", 1,
      [&] {
        HearingSink sink(1);
        ValueOrDie(session.Generate(one, sink));
        expect_cut_short(sink, first);
      },
      check, abort);
  EXPECT_GT(aborted, 0);
  aborted = 0;
  Walk(
      "abort in decode", 1,
      [&] {
        HearingSink sink(2);
        int tokens = 0;
        const auto [rank, index] = ledger_.armed();
        ledger_.Count();
        // Both prompts have been read.
        sink.on_token = [&, rank = rank, index = index] {
          if (++tokens == 2 && rank >= 0) abort(rank, index);
          if (tokens == 2 && rank < 0) ledger_.Count();
        };
        ValueOrDie(session.Generate(requests_, sink));
        expect_cut_short(sink, reference_);
      },
      check, abort);
  EXPECT_GT(aborted, 0);
  std::printf("%-7s abort: %lld points\n", GetParam(),
              static_cast<long long>(walked_));
  EXPECT_GE(walked_, 100);
}

constexpr std::array<const char*, 3> kMeshes = {"single", "ep=4", "tp=2"};

INSTANTIATE_TEST_SUITE_P(Meshes, FaultWalk, ::testing::ValuesIn(kMeshes),
                         [](const auto& info) {
                           std::string name(info.param);
                           std::erase(name, '=');
                           return name;
                         });

}  // namespace
}  // namespace signet::testing
