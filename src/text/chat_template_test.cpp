#include "text/chat_template.h"

#include <gtest/gtest.h>

#include <vector>

#include "signet/rejection_code.h"
#include "tests/support/chat_template_text.h"

namespace signet::text {
namespace {

using ::signet::testing::kChatTemplateText;

std::string Without(std::string text, const std::string& part,
                    const std::string& other = {}) {
  const size_t at = text.find(part);
  EXPECT_NE(at, std::string::npos) << part;
  return text.replace(at, part.size(), other);
}

bool IsRecognised(const std::string& source) {
  const Result<void> result = RecogniseChatTemplate(source, "file");
  if (result) return true;
  const Rejection& rejection =
      std::get<Rejections>(result.error()).list().front();
  EXPECT_EQ(rejection.code, RejectionCode::kTokenizerUnsupported);
  EXPECT_EQ(rejection.where, "file");
  return false;
}

TEST(ChatTemplate, TheCanonicalOneIsRecognised) {
  EXPECT_TRUE(IsRecognised(kChatTemplateText));
}

TEST(ChatTemplate, OneThatRendersOtherwiseIsNot) {
  const std::string text = kChatTemplateText;
  EXPECT_FALSE(IsRecognised(""));
  EXPECT_FALSE(IsRecognised("{{ messages }}"));
  EXPECT_FALSE(IsRecognised(Without(text, "+ '<|im_end|>' + '\\n'")));
  EXPECT_FALSE(IsRecognised(Without(text, ".rstrip('\\n')")));
  EXPECT_FALSE(IsRecognised(Without(text, " > ns.last", " >= ns.last")));
  // Does not think unless told to.
  EXPECT_FALSE(IsRecognised(
      Without(text, "enable_thinking is false", "enable_thinking is true")));
  // Something is written behind the generation prompt.
  EXPECT_FALSE(IsRecognised(text + "{{- 'x' }}"));
  EXPECT_FALSE(IsRecognised("{%- set e = reasoning_effort %}" + text));
}

TEST(ChatTemplate, EveryCutAndEveryFlippedByteEndsInAnAnswer) {
  const std::string text = kChatTemplateText;
  for (size_t size = 0; size + 1 < text.size(); ++size) {
    EXPECT_FALSE(IsRecognised(text.substr(0, size))) << size;
  }
  for (size_t at = 0; at < text.size(); ++at) {
    std::string flipped = text;
    flipped[at] = static_cast<char>(flipped[at] ^ 0x80);
    IsRecognised(flipped);
  }
}

TEST(ChatTemplate, OfAConfigIsTheStringOrTheDefaultOne) {
  EXPECT_EQ(TemplateOfConfig(""), std::nullopt);
  EXPECT_EQ(TemplateOfConfig("[1"), std::nullopt);
  EXPECT_EQ(TemplateOfConfig(R"({"chat_template":null})"), std::nullopt);
  EXPECT_EQ(TemplateOfConfig(R"({"chat_template":"a"})"), "a");
  EXPECT_EQ(TemplateOfConfig(R"({"chat_template":[
      {"name":"tool_use","template":"a"},
      {"name":"default","template":"b"}]})"),
            "b");
  // One that is there and cannot be read is none that is known.
  for (const char* config :
       {R"({"chat_template":7})", R"({"chat_template":[]})",
        R"({"chat_template":[1,{"name":3},{"name":"default"}]})",
        R"({"chat_template":{"default":"a"}})"}) {
    EXPECT_EQ(TemplateOfConfig(config), "") << config;
  }
}

}  // namespace
}  // namespace signet::text
