#include "text/stop_matcher.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace signet::text {
namespace {

struct Outcome {
  std::string text;
  bool stopped;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

std::ostream& operator<<(std::ostream& out, const Outcome& outcome) {
  return out << '"' << outcome.text << '"'
             << (outcome.stopped ? " stopped" : " not stopped");
}

Outcome Match(const std::vector<std::string>& sequences,
              const std::vector<std::string_view>& pieces) {
  StopMatcher matcher(sequences);
  Outcome outcome = {"", false};
  for (const std::string_view piece : pieces) {
    const StopMatcher::Piece shown = matcher.Push(piece);
    outcome.text += shown.text;
    outcome.stopped = outcome.stopped || shown.stopped;
  }
  outcome.text += matcher.Finish();
  return outcome;
}

// The rule itself: the least end of a sequence, then the greatest length.
Outcome ByDefinition(const std::vector<std::string>& sequences,
                     std::string_view text) {
  for (size_t end = 1; end <= text.size(); ++end) {
    size_t longest = 0;
    for (const std::string& sequence : sequences) {
      if (text.substr(0, end).ends_with(sequence)) {
        longest = std::max(longest, sequence.size());
      }
    }
    if (longest > 0) return {std::string(text.substr(0, end - longest)), true};
  }
  return {std::string(text), false};
}

TEST(StopMatcherTest, TextEndsBeforeTheSequence) {
  EXPECT_EQ(Match({"STOP"}, {"go STOP gone"}), (Outcome{"go ", true}));
  EXPECT_EQ(Match({"STOP"}, {"STOP"}), (Outcome{"", true}));
  EXPECT_EQ(Match({"STOP"}, {"go STO"}), (Outcome{"go STO", false}));
}

TEST(StopMatcherTest, ShowsAllThatCannotBeginASequence) {
  StopMatcher matcher({"STOP", "\n\n"});
  EXPECT_EQ(matcher.Push("abc").text, "abc");
  EXPECT_EQ(matcher.Push("dS").text, "d");
  EXPECT_EQ(matcher.Push("T").text, "");
  EXPECT_EQ(matcher.Push("S").text, "ST");
  EXPECT_EQ(matcher.Push("x\n").text, "Sx");
  EXPECT_EQ(matcher.Push("").text, "");
  EXPECT_EQ(matcher.Push("y").text, "\ny");
  EXPECT_EQ(matcher.Finish(), "");
}

TEST(StopMatcherTest, FinishGivesTheHeldBackTailOnce) {
  StopMatcher matcher({"STOP"});
  EXPECT_EQ(matcher.Push("aST").text, "a");
  EXPECT_EQ(matcher.Finish(), "ST");
  EXPECT_EQ(matcher.Finish(), "");
}

TEST(StopMatcherTest, NothingComesAfterTheStop) {
  StopMatcher matcher({"STOP"});
  EXPECT_FALSE(matcher.Push("aSTO").stopped);
  const StopMatcher::Piece last = matcher.Push("P and more");
  EXPECT_TRUE(last.stopped);
  EXPECT_EQ(last.text, "");
  EXPECT_EQ(matcher.Push("more").text, "");
  EXPECT_EQ(matcher.Finish(), "");
}

TEST(StopMatcherTest, TheSequenceThatIsCompleteFirstWins) {
  EXPECT_EQ(Match({"abcd", "bc"}, {"xabcd"}), (Outcome{"xa", true}));
  EXPECT_EQ(Match({"bc", "abcd"}, {"xabcd"}), (Outcome{"xa", true}));
}

TEST(StopMatcherTest, OfSequencesThatEndTogetherTheLongestWins) {
  EXPECT_EQ(Match({"c", "abc", "bc"}, {"xabc"}), (Outcome{"x", true}));
}

TEST(StopMatcherTest, ASequenceThatOverlapsItselfIsFound) {
  EXPECT_EQ(Match({"aab"}, {"aaaab"}), (Outcome{"aa", true}));
  EXPECT_EQ(Match({"abab"}, {"ababab"}), (Outcome{"", true}));
  EXPECT_EQ(Match({"abac"}, {"ababac"}), (Outcome{"ab", true}));
}

TEST(StopMatcherTest, NoSequenceOrEmptyOnesHoldNothingBack) {
  for (const std::vector<std::string>& sequences :
       {std::vector<std::string>{}, std::vector<std::string>{"", ""}}) {
    StopMatcher matcher(sequences);
    const StopMatcher::Piece piece = matcher.Push("text");
    EXPECT_EQ(piece.text, "text");
    EXPECT_FALSE(piece.stopped);
  }
}

TEST(StopMatcherTest, CutAtEveryByteTheOutcomeIsTheSame) {
  const std::vector<std::string> sequences = {
      "<|im_end|>", "\n\nUser:", "\u4E2D\u6587", "end|><"};
  for (const std::string text :
       {"Answer.<|im_end|> more", "a\n\n\nUser: b", "\u4E2D\u4E2D\u6587!",
        "<|im_<|im_end|><x", "<|im_end|", "plain"}) {
    const Outcome whole = Match(sequences, {text});
    EXPECT_EQ(whole, ByDefinition(sequences, text));
    std::vector<std::string_view> bytes;
    const std::string_view view = text;
    for (size_t cut = 0; cut <= text.size(); ++cut) {
      EXPECT_EQ(Match(sequences, {view.substr(0, cut), view.substr(cut)}),
                whole);
      if (cut < text.size()) bytes.push_back(view.substr(cut, 1));
    }
    EXPECT_EQ(Match(sequences, bytes), whole);
  }
}

TEST(StopMatcherTest, RandomTextsAgreeWithTheDefinition) {
  std::mt19937 random(3);
  const auto word = [&](size_t longest) {
    std::string text;
    const size_t length = random() % (longest + 1);
    while (text.size() < length) text += "ab"[random() % 2];
    return text;
  };
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::string> sequences;
    for (size_t i = random() % 4; i > 0; --i) {
      sequences.push_back(word(7) + "a");
    }
    const std::string text = word(40);
    std::vector<std::string_view> pieces;
    for (std::string_view rest = text; !rest.empty();) {
      pieces.push_back(rest.substr(0, 1 + random() % 5));
      rest.remove_prefix(pieces.back().size());
    }
    ASSERT_EQ(Match(sequences, pieces), ByDefinition(sequences, text));
  }
}

}  // namespace
}  // namespace signet::text
