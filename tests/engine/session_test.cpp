// Generation through the public API: terminal events, stops, abort, reset and
// the context limit (contract X8), on the demo model.

#include "signet/session.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "engine/demo_engine.h"

namespace signet::testing {
namespace {

const char kPrompt[] = "Alice was beginning to";

TEST(Session, X8_EveryRequestEndsInExactlyOneTerminalEvent) {
  const Model model = LoadDemo({.context = 256, .batch = 2});
  Session session = ValueOrDie(Session::Make(model, 2));
  // More requests than slots, of different lengths.
  const std::vector<Told> told =
      GenerateAll(session, {Ask(kPrompt, 5), Ask("The", 1), Ask("He said", 9),
                            Ask("A", 3), Ask("And it came to pass", 7)});
  const std::vector<int64_t> wanted = {5, 1, 9, 3, 7};
  for (size_t i = 0; i < told.size(); ++i) {
    EXPECT_EQ(told[i].ends, 1);
    EXPECT_EQ(told[i].finish, Finish::kLength);
    EXPECT_EQ(told[i].tokens, wanted[i]);
    EXPECT_EQ(told[i].ids.size(), static_cast<size_t>(wanted[i]));
    EXPECT_FALSE(told[i].context_full);
  }
}

TEST(Session, N4_ABatchedSequenceIsTheOneAlone) {
  const Model model = LoadDemo({.context = 256, .batch = 3});
  Session together = ValueOrDie(Session::Make(model, 3));
  std::vector<Request> requests = {Ask(kPrompt, 24), Ask("The", 24),
                                   Ask("In the beginning", 11)};
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].sampling = {.temperature = 0.9f, .top_p = 0.95f, .seed = 3};
    requests[i].sequence = static_cast<uint32_t>(i);
  }
  const std::vector<Told> batch = GenerateAll(together, requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    Session alone = ValueOrDie(Session::Make(model, 1));
    const std::vector<Told> one = GenerateAll(alone, {requests[i]});
    EXPECT_EQ(one[0].ids, batch[i].ids) << "request " << i;
    EXPECT_EQ(one[0].text, batch[i].text);
  }
}

TEST(Session, X7_TheSeedAndTheSequenceNumberDecideTheDraw) {
  const Model model = LoadDemo({.context = 256});
  Session session = ValueOrDie(Session::Make(model, 1));
  Request request = Ask(kPrompt, 24);
  request.sampling = {.temperature = 1.0f, .seed = 1};
  const auto ids = [&] { return GenerateAll(session, {request})[0].ids; };
  const std::vector<int32_t> first = ids();
  EXPECT_EQ(ids(), first);
  request.sampling.seed = uint64_t{1} << 32;
  EXPECT_NE(ids(), first);
  request.sampling.seed = 1;
  request.sequence = 1;
  EXPECT_NE(ids(), first);
}

TEST(Session, X8_AbortInDecodeThenResetGivesTheBitsOfAFreshSession) {
  const Model model = LoadDemo({.context = 256});
  Session fresh = ValueOrDie(Session::Make(model, 1));
  const std::vector<int32_t> wanted =
      GenerateAll(fresh, {Ask(kPrompt, 20)})[0].ids;

  Session session = ValueOrDie(Session::Make(model, 1));
  const std::vector<Request> requests = {Ask("It was", 50), Ask("He", 50)};
  KeepingSink sink(2);
  sink.on_token = [&](const TokenEvent&) {
    if (sink.told[0].ids.size() == 4) session.Abort();
  };
  ValueOrDie(session.Generate(requests, sink));
  EXPECT_EQ(sink.told[0].finish, Finish::kAborted);
  EXPECT_EQ(sink.told[0].tokens, 4);
  EXPECT_EQ(sink.told[1].finish, Finish::kAborted);
  EXPECT_EQ(sink.told[1].tokens, 0);
  EXPECT_EQ(sink.told[0].ends + sink.told[1].ends, 2);
  session.Reset();
  EXPECT_EQ(GenerateAll(session, {Ask(kPrompt, 20)})[0].ids, wanted);
}

TEST(Session, X8_AbortInPrefillFromAnotherThread) {
  const Model model = LoadDemo({.context = 512, .prefill_chunks = {1}});
  Session session = ValueOrDie(Session::Make(model, 1));
  const Request request = {.prompt = std::vector<int32_t>(500, 40),
                           .max_tokens = 4};
  std::atomic<bool> ended{false};
  std::thread aborter([&] {
    while (!ended.load()) {
      session.Abort();
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  });
  const std::vector<Told> told = GenerateAll(session, {request});
  ended.store(true);
  aborter.join();
  EXPECT_EQ(told[0].finish, Finish::kAborted);
  EXPECT_EQ(told[0].tokens, 0);
  EXPECT_EQ(told[0].ends, 1);
  session.Reset();
  EXPECT_EQ(GenerateAll(session, {Ask(kPrompt, 3)})[0].finish, Finish::kLength);
}

TEST(Session, AChunkOfAPromptIsToldWhileMoreFollow) {
  class Reader : public KeepingSink {
   public:
    using KeepingSink::KeepingSink;
    void OnPrompt(const PromptEvent& event) override {
      EXPECT_EQ(event.request, 1u);
      EXPECT_EQ(event.tokens, 500);
      EXPECT_TRUE(told[1].ids.empty());
      read.push_back(event.read);
    }
    std::vector<int64_t> read;
  };
  const Model model = LoadDemo({.context = 512, .prefill_chunks = {64, 128}});
  Session session = ValueOrDie(Session::Make(model, 1));
  const std::vector<Request> requests = {
      Ask(kPrompt, 1),
      {.prompt = std::vector<int32_t>(500, 40), .max_tokens = 2}};
  Reader reader(requests.size());
  ValueOrDie(session.Generate(requests, reader));
  EXPECT_EQ(reader.read, (std::vector<int64_t>{128, 256, 384}));
  EXPECT_EQ(reader.told[1].tokens, 2);
}

TEST(Session, X8_AnAbortBeforeGenerateIsNotLost) {
  const Model model = LoadDemo({.context = 256});
  Session session = ValueOrDie(Session::Make(model, 1));
  session.Abort();
  const Told told = GenerateAll(session, {Ask(kPrompt, 3)})[0];
  EXPECT_EQ(told.finish, Finish::kAborted);
  EXPECT_EQ(told.ends, 1);
  // It ended one Generate, not the next.
  EXPECT_EQ(GenerateAll(session, {Ask(kPrompt, 3)})[0].finish, Finish::kLength);
  session.Abort();
  session.Reset();
  EXPECT_EQ(GenerateAll(session, {Ask(kPrompt, 3)})[0].finish, Finish::kLength);
}

TEST(Session, TheContextEndsGenerationClearly) {
  const Model model = LoadDemo({.context = 16});
  Session session = ValueOrDie(Session::Make(model, 1));
  Request request = {.prompt = std::vector<int32_t>(10, 40), .max_tokens = 100};
  request.ignore_eos = true;
  Told told = GenerateAll(session, {request})[0];
  // Tokens at positions 10 ... 16; the last is drawn but has no place.
  EXPECT_EQ(told.tokens, 7);
  EXPECT_EQ(told.finish, Finish::kLength);
  EXPECT_TRUE(told.context_full);

  request.prompt = std::vector<int32_t>(16, 40);
  told = GenerateAll(session, {request})[0];
  EXPECT_EQ(told.tokens, 1);
  EXPECT_TRUE(told.context_full);
}

TEST(Session, AStopSequenceEndsTheTextBeforeIt) {
  const Model model = LoadDemo({.context = 256});
  Session session = ValueOrDie(Session::Make(model, 1));
  Request request = Ask(kPrompt, 40);
  const std::string whole = GenerateAll(session, {request})[0].text;
  ASSERT_GT(whole.size(), 20u);
  const std::string stop = whole.substr(11, 5);
  request.stops = {"never in it \x01", stop};
  const Told told = GenerateAll(session, {request})[0];
  EXPECT_EQ(told.finish, Finish::kStop);
  EXPECT_EQ(told.text, whole.substr(0, whole.find(stop)));
}

TEST(Session, AStopIdEndsGenerationUnlessIgnored) {
  const Model model = LoadDemo({.context = 256});
  ASSERT_FALSE(model.stop_ids().empty());
  Session session = ValueOrDie(Session::Make(model, 1));
  Request request = Ask(kPrompt, 250);
  request.sampling = {.temperature = 3.0f, .seed = 11};
  request.ignore_eos = true;
  const std::vector<int32_t> all = GenerateAll(session, {request})[0].ids;
  const auto is_stop = [&](int32_t id) {
    for (const int32_t stop : model.stop_ids()) {
      if (id == stop) return true;
    }
    return false;
  };
  const size_t first = static_cast<size_t>(
      std::find_if(all.begin(), all.end(), is_stop) - all.begin());
  request.ignore_eos = false;
  const Told told = GenerateAll(session, {request})[0];
  EXPECT_EQ(told.ids,
            std::vector<int32_t>(all.begin(),
                                 all.begin() + static_cast<int64_t>(first)));
  EXPECT_EQ(told.finish, first < all.size() ? Finish::kStop : Finish::kLength);
}

TEST(Session, RefusesBadRequestsBeforeAnyEvent) {
  const Model model = LoadDemo({.context = 16});
  Session session = ValueOrDie(Session::Make(model, 1));
  const auto refused = [&](Request request, RejectionCode code) {
    const std::vector<Request> requests = {Ask("fine", 1), std::move(request)};
    KeepingSink sink(2);
    EXPECT_TRUE(Refuses(session.Generate(requests, sink), code));
    EXPECT_EQ(sink.told[0].ends + sink.told[1].ends, 0);
  };
  refused(Ask("", 1), RejectionCode::kRequestInvalid);
  refused(Ask("ok", 0), RejectionCode::kRequestInvalid);
  refused(Ask("\xff", 1), RejectionCode::kRequestInvalid);
  refused({.prompt = std::vector<int32_t>{-1}}, RejectionCode::kRequestInvalid);
  refused({.prompt = std::vector<int32_t>{4096}},
          RejectionCode::kRequestInvalid);
  refused({.prompt = std::vector<int32_t>(17, 5)},
          RejectionCode::kPromptTooLong);
  Request bad = Ask("ok", 1);
  bad.sampling.temperature = -1;
  refused(bad, RejectionCode::kRequestInvalid);
  bad.sampling = {.temperature = 1, .top_k = -1};
  refused(bad, RejectionCode::kRequestInvalid);
  bad.sampling = {.temperature = 1, .top_p = 0};
  refused(bad, RejectionCode::kRequestInvalid);
}

TEST(Session, RejectionsNameARequestAsItsCallerDoes) {
  const Model model = LoadDemo({.context = 16});
  Session session = ValueOrDie(Session::Make(model, 1));
  KeepingSink sink(2);
  std::vector<Request> requests = {Ask("fine", 1), Ask("", 1)};
  const auto place = [&] {
    const Result<void> result = session.Generate(requests, sink);
    return std::get<Rejections>(result.error()).list().front().where;
  };
  EXPECT_EQ(place(), "request 1");
  requests[1].name = "my.txt:7";
  EXPECT_EQ(place(), "my.txt:7");
}

}  // namespace
}  // namespace signet::testing
