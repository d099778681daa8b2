#include "text/splitter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "text/tokenizer_testing.h"

namespace signet::text {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Pieces = std::vector<std::string>;

std::unique_ptr<const Splitter> CompileOrThrow(std::string_view regex) {
  FileIssues issues;
  auto splitter = Splitter::Compile(regex, "regex", &issues);
  if (!issues.empty()) {
    throw std::runtime_error(Describe(issues.Take().value()));
  }
  return splitter;
}

std::optional<Pieces> TrySplit(std::string_view regex, std::string_view text) {
  std::vector<size_t> ends;
  if (!CompileOrThrow(regex)->Split(text, &ends)) return std::nullopt;
  Pieces pieces;
  size_t begin = 0;
  for (const size_t end : ends) {
    pieces.emplace_back(text.substr(begin, end - begin));
    begin = end;
  }
  EXPECT_EQ(begin, text.size());
  return pieces;
}

Pieces Split(std::string_view regex, std::string_view text) {
  return TrySplit(regex, text).value_or(Pieces{"too much work"});
}

TEST(SplitterTest, MatchesAndGapsArePieces) {
  EXPECT_THAT(Split("[0-9]+", "ab12c3"), ElementsAre("ab", "12", "c", "3"));
  EXPECT_THAT(Split("b", "aaa"), ElementsAre("aaa"));
  EXPECT_THAT(Split("a", ""), ElementsAre());
}

TEST(SplitterTest, AnEmptyMatchCutsButIsNoPiece) {
  EXPECT_THAT(Split("(?=b)", "aabb"), ElementsAre("aa", "b", "b"));
  EXPECT_THAT(Split("x*", "a\u00E9xb"), ElementsAre("a", "\u00E9", "x", "b"));
}

TEST(SplitterTest, TheQwenRegexCutsAsItsAuthorsMeant) {
  EXPECT_THAT(Split(kQwenRegex, "I'm 12, we'RE  here!\n\n x"),
              ElementsAre("I", "'m", " ", "1", "2", ",", " we", "'RE", " ",
                          " here", "!\n\n", " x"));
  EXPECT_THAT(Split(kQwenRegex, "a   b \n c  "),
              ElementsAre("a", "  ", " b", " \n", " c", "  "));
  // Long s is an s when case is ignored; marks belong to their letters.
  EXPECT_THAT(Split(kQwenRegex, "a'\u017Fb \u0915\u094D\u0937"),
              ElementsAre("a", "'\u017F", "b", " \u0915\u094D\u0937"));
}

TEST(SplitterTest, SpaceIsUnicodeWhiteSpaceEverywhere) {
  // White_Space and nothing else, in a class or outside, negated or not.
  const std::string space = "\t\v\f \u0085\u00A0\u1680\u2009\u2028\u202F\u3000";
  const std::string other = "\u180E\u200B\u2060\uFEFF\x1C";
  for (const char* regex : {"\\s+", "[\\s]+", "[^\\S]+"}) {
    EXPECT_THAT(Split(regex, other + space + other),
                ElementsAre(other, space, other))
        << regex;
  }
  for (const char* regex : {"\\S+", "[\\S]+", "[^\\s]+"}) {
    EXPECT_THAT(Split(regex, space + other + space),
                ElementsAre(space, other, space))
        << regex;
  }
  EXPECT_THAT(Split("[^\\s\\p{L}]+", "a.\u180E b"),
              ElementsAre("a", ".\u180E", " b"));
}

TEST(SplitterTest, PiecesLongerThanTheFirstWindowStayWhole) {
  for (const size_t length : {62, 63, 64, 65, 127, 128, 129, 1000, 70000}) {
    const std::string word(length, 'a');
    const std::string gap(length, '.');
    const std::string spaces(length, ' ');
    EXPECT_EQ(Split("[a-z]+", gap + word + gap), (Pieces{gap, word, gap}));
    EXPECT_EQ(Split("[a-z]+\\.", word + "." + gap + word),
              (Pieces{word + ".", gap + word}));
    EXPECT_EQ(Split(kQwenRegex, word + spaces + word),
              (Pieces{word, spaces.substr(1), " " + word}));
    EXPECT_EQ(Split(kQwenRegex, word + spaces + "\n" + spaces),
              (Pieces{word, spaces + "\n", spaces}));
  }
}

TEST(SplitterTest, AWindowNeverCutsACharacter) {
  for (size_t shift = 0; shift < 4; ++shift) {
    std::string text(shift, '.');
    std::string letters;
    for (int i = 0; i < 100; ++i) letters += "\U00020000\u4E2D\u00E9";
    text += letters;
    Pieces expected = {letters};
    if (shift > 0) expected = {std::string(shift, '.'), letters};
    EXPECT_EQ(Split("\\p{L}+", text), expected);
    // U+4E2D is E4 B8 AD: read from its middle it would be one of these.
    std::string gap(shift, '.');
    for (int i = 0; i < 100; ++i) gap += "\u4E2D";
    EXPECT_EQ(Split("[\u00AD\u00B8]", gap), Pieces{gap});
  }
}

TEST(SplitterTest, LookbehindSeesTheTextBeforeThePiece) {
  EXPECT_THAT(Split("(?<=a)b|.", "abb"), ElementsAre("a", "b", "b"));
}

TEST(SplitterTest, RegexesThatBacktrackForEverAreGivenUp) {
  const std::string letters(40, 'a');
  // The last part is a class, so that PCRE2 cannot look for it beforehand.
  EXPECT_EQ(TrySplit("(?:a+)+[bc]", letters), std::nullopt);
  EXPECT_EQ(TrySplit("(?:a|a)*[bc]", letters), std::nullopt);
  EXPECT_EQ(TrySplit("(?:[a-z]*)*[0-9]", std::string(5000, 'a')), std::nullopt);
}

TEST(SplitterTest, RegexesThatLookFarAheadForEveryPieceAreGivenUp) {
  const std::string letters(1000000, 'a');
  const CpuTimer timer;
  EXPECT_EQ(TrySplit("a[^b]*b|a", letters), std::nullopt);
  EXPECT_EQ(TrySplit("a(?=.*b)|a", letters), std::nullopt);
  // Quadratic work would take minutes.
  EXPECT_LT(timer.Seconds(), 20);
  // The same on a short text is allowed.
  EXPECT_THAT(Split("a[^b]*b|a", "aaabaa"), ElementsAre("aaab", "a", "a"));
}

TEST(SplitterTest, ConstructsThatDifferBetweenDialectsAreNamed) {
  for (const char* construct :
       {"\\w",     "\\W",  "\\b",        "\\h",        "\\v",         "\\R",
        "\\X",     "\\K",  "\\G",        "\\A",        "\\1",         "\\x41",
        "\\u0041", "\\pL", "\\p{Greek}", "\\p{Alpha}", "\\p{^L}",     "^",
        "$",       "(?i)", "(?m:",       "(?x:",       "(?<n",        "(?P<",
        "(?#",     "(?R",  "(*S",        "(?C",        "[[:alpha:]]", "[a&&b]",
        "[]",      "[^]",  "a**",        "a{2}?",      "a{2}+",       "a{,2}",
        "a{x}",    "}",    "*",          "[a"}) {
    FileIssues issues;
    EXPECT_EQ(Splitter::Compile(construct, "the place", &issues), nullptr)
        << construct;
    ASSERT_FALSE(issues.empty()) << construct;
    const Error error = issues.Take().value();
    const Rejection& first = std::get<Rejections>(error).list()[0];
    EXPECT_EQ(first.code, RejectionCode::kTokenizerUnsupported) << construct;
    EXPECT_EQ(first.where, "the place");
    EXPECT_THAT(first.got, HasSubstr("at byte")) << construct;
  }
}

TEST(SplitterTest, ConstructsThatAreAlikePass) {
  for (const char* regex :
       {"\\d\\D\\r\\n\\t\\f", "\\p{Lu}\\P{Nd}\\p{Z}", "\\.\\[\\]\\\\\\-\\/",
        "(?:a|b)(?i:c)(?=d)(?!e)(?<=f)(?<!g)(?>h)(i)", "a?b*c+a??b*?c+?",
        "a?+b*+c++", "a{2}b{2,}c{2,3}", "[a-z\\]\\-.*{}()]", "]", "[^\\s]",
        "\u4E00-\u9FFF", "[\u4E00-\u9FFF]+"}) {
    FileIssues issues;
    EXPECT_NE(Splitter::Compile(regex, "the place", &issues), nullptr) << regex;
  }
}

TEST(SplitterTest, RegexesThatDoNotCompileAreInvalid) {
  const std::string deep = std::string(100, '(') + "a" + std::string(100, ')');
  const std::string huge = "(?:(?:(?:a{1,60000}){1,60000}){1,60000})";
  for (const std::string& regex :
       {std::string("(a"), std::string("a)"), std::string("[z-a]"),
        std::string("a{3,2}"), std::string("(?<=a*)b"), std::string("a\\"),
        std::string("a{99999}"), deep, huge, std::string(),
        std::string(9000, 'a')}) {
    FileIssues issues;
    EXPECT_EQ(Splitter::Compile(regex, "the place", &issues), nullptr) << regex;
    EXPECT_FALSE(issues.empty());
  }
}

}  // namespace
}  // namespace signet::text
