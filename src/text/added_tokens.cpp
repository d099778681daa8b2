#include "text/added_tokens.h"

#include <fmt/format.h>

#include <charconv>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "text/tokenizer_document.h"

namespace signet::text {
namespace {

using Json = nlohmann::json;

// The matcher looks at up to this many bytes from every byte of a prompt.
constexpr size_t kMaxContentBytes = 256;

std::optional<int32_t> IdFromJson(const Json* value) {
  if (value == nullptr || !value->is_number_unsigned()) return std::nullopt;
  if (value->get<uint64_t>() > kMaxTokenId) return std::nullopt;
  return value->get<int32_t>();
}

// The keys of added_tokens_decoder: decimal, in the one canonical spelling.
std::optional<int32_t> IdFromKey(const std::string& key) {
  int32_t id = 0;
  const char* end = key.data() + key.size();
  const auto [stopped, error] = std::from_chars(key.data(), end, id);
  if (error != std::errc() || stopped != end || id < 0 || id > kMaxTokenId ||
      std::to_string(id) != key) {
    return std::nullopt;
  }
  return id;
}

class Collector {
 public:
  explicit Collector(FileIssues* issues) : issues_(issues) {}

  enum class Source { kTokenizer, kConfig };

  void Add(const JsonSection& section, std::optional<int32_t> id,
           std::string id_text, Source source) {
    if (!id) {
      issues_->Invalid(section.Where("id"), "an added token has no valid id",
                       std::move(id_text),
                       fmt::format("an integer 0 ... {}", kMaxTokenId));
    }
    std::optional<AddedToken> token = Read(section);
    if (!id || !token) return;
    token->id = *id;
    Merge(section, *std::move(token), source);
  }

  std::vector<AddedToken> Take() {
    std::vector<AddedToken> tokens;
    tokens.reserve(by_id_.size());
    for (auto& [id, entry] : by_id_) tokens.push_back(std::move(entry.token));
    return tokens;
  }

 private:
  struct Entry {
    AddedToken token;
    Source source;
  };

  std::optional<AddedToken> Read(const JsonSection& section) const {
    const std::string content = section.String("content");
    for (const std::string_view flag :
         {"lstrip", "rstrip", "single_word", "normalized"}) {
      if (!section.Bool(flag)) continue;
      issues_->Unsupported(
          section.Where(flag), "an added token is not matched literally",
          fmt::format("true for {}", Quoted(content)), "false");
    }
    const bool special = section.Bool("special");
    if (content.empty() || content.size() > kMaxContentBytes) {
      issues_->Invalid(section.Where("content"),
                       "an added token is empty or too long",
                       fmt::format("{} bytes", content.size()),
                       fmt::format("1 ... {} bytes", kMaxContentBytes));
      return std::nullopt;
    }
    return AddedToken{0, content, special};
  }

  // The config repeats the tokenizer's tokens; a repetition must be exact.
  void Merge(const JsonSection& section, AddedToken token, Source source) {
    const auto [by_content, is_new_content] =
        by_content_.emplace(token.content, token.id);
    if (by_content->second != token.id) {
      issues_->Invalid(
          section.Where("content"),
          fmt::format("added token {} has two ids", Quoted(token.content)),
          fmt::format("{} and {}", by_content->second, token.id));
      return;
    }
    const auto known = by_id_.find(token.id);
    if (known == by_id_.end()) {
      const int32_t id = token.id;
      by_id_.emplace(id, Entry{std::move(token), source});
      return;
    }
    const AddedToken& other = known->second.token;
    if (other.content != token.content) {
      issues_->Invalid(section.Where("id"),
                       fmt::format("id {} has two added tokens", token.id),
                       fmt::format("{} and {}", Quoted(other.content),
                                   Quoted(token.content)));
    } else if (other.special != token.special) {
      issues_->Invalid(section.Where("special"),
                       fmt::format("the files disagree about added token {}",
                                   Quoted(token.content)));
    } else if (known->second.source == source) {
      issues_->Invalid(
          section.Where("id"), "an added token is repeated",
          fmt::format("{} with id {}", Quoted(token.content), token.id));
    }
  }

  FileIssues* issues_;
  std::map<int32_t, Entry> by_id_;
  std::map<std::string, int32_t, std::less<>> by_content_;
};

}  // namespace

std::vector<AddedToken> ReadAddedTokens(const JsonSection& tokenizer,
                                        const JsonSection& config) {
  Collector collector(tokenizer.issues());
  if (!tokenizer.IsNull("added_tokens")) {
    for (const JsonSection& section : tokenizer.List("added_tokens")) {
      const Json* id = section.Find("id");
      collector.Add(section, IdFromJson(id),
                    id == nullptr ? "nothing" : Describe(*id),
                    Collector::Source::kTokenizer);
    }
  }
  if (!config.IsNull("added_tokens_decoder")) {
    const JsonSection decoder = config.Section("added_tokens_decoder");
    if (decoder.object() == nullptr) return collector.Take();
    for (const auto& [key, value] : decoder.object()->items()) {
      const JsonSection section(&value, decoder.Where(Quoted(key)),
                                decoder.issues());
      collector.Add(section, IdFromKey(key), Quoted(key),
                    Collector::Source::kConfig);
    }
  }
  return collector.Take();
}

}  // namespace signet::text
