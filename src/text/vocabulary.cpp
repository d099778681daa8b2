#include "text/vocabulary.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <unordered_map>
#include <utility>

#include "text/byte_alphabet.h"

namespace signet::text {
namespace {

constexpr int32_t kNoToken = -1;
// At half load an honest file stays below 60.
constexpr int kMaxProbes = 512;

std::string WhereToken(std::string_view token) {
  return fmt::format("tokenizer.json: model.vocab[{}]", Quoted(token));
}

}  // namespace

struct Vocabulary::Token {
  int32_t id;
  bool is_special;
  bool is_in_model;  // BPE can produce it
  std::string bytes;
};

Vocabulary Vocabulary::Make(
    const std::vector<TokenizerDocument::VocabEntry>& entries,
    const std::vector<AddedToken>& added, FileIssues* issues) {
  // An added token may stand in model.vocab too, with the same id.
  struct Listing {
    int32_t id;
    bool is_in_vocab = false;
    bool is_in_model = false;
  };
  std::unordered_map<std::string_view, Listing> listings;
  for (const AddedToken& token : added) {
    listings.emplace(token.content, Listing{token.id});
  }
  std::vector<Token> tokens;
  tokens.reserve(entries.size() + added.size());
  for (const TokenizerDocument::VocabEntry& entry : entries) {
    std::string bytes;
    const bool in_alphabet = AppendAlphabetBytes(entry.token, &bytes);
    const auto found = listings.find(entry.token);
    if (found != listings.end()) {
      Listing& listing = found->second;
      if (listing.id != entry.id) {
        issues->Invalid(WhereToken(entry.token), "an added token has two ids",
                        fmt::format("{} and {}", entry.id, listing.id));
      }
      if (std::exchange(listing.is_in_vocab, true)) {
        issues->Invalid(WhereToken(entry.token), "a token is repeated");
      }
      // Its text is literal; BPE can make it where both readings agree.
      listing.is_in_model = bytes == entry.token;
    } else if (in_alphabet) {
      tokens.push_back({entry.id, false, true, std::move(bytes)});
    } else {
      issues->Invalid(WhereToken(entry.token),
                      "a token is not in the byte alphabet");
    }
  }
  for (const AddedToken& token : added) {
    tokens.push_back({token.id, token.special,
                      listings.at(token.content).is_in_model, token.content});
  }
  if (!std::ranges::is_sorted(tokens, {}, &Token::id)) {
    std::ranges::stable_sort(tokens, {}, &Token::id);
  }
  for (size_t i = 1; i < tokens.size(); ++i) {
    const Token& token = tokens[i];
    const Token& other = tokens[i - 1];
    if (token.id != other.id) continue;
    // A token of the model that is there twice is found by the index below.
    if (token.is_in_model && other.is_in_model && token.bytes == other.bytes) {
      continue;
    }
    issues->Invalid(
        fmt::format("tokenizer.json: id {}", token.id), "an id has two tokens",
        fmt::format("{} and {}", Quoted(other.bytes), Quoted(token.bytes)));
  }
  Vocabulary vocabulary;
  vocabulary.Lay(tokens);
  vocabulary.Index(tokens, issues);
  return vocabulary;
}

void Vocabulary::Lay(const std::vector<Token>& tokens) {
  const size_t bound = tokens.empty() ? 0 : tokens.back().id + size_t{1};
  begins_.reserve(bound + 1);
  special_.resize(bound);
  for (const Token& token : tokens) {
    // Ids below without a token are empty ranges. A repeated id was reported.
    const size_t id = static_cast<size_t>(token.id);
    if (begins_.size() > id) continue;
    begins_.resize(id + 1, static_cast<uint32_t>(bytes_.size()));
    bytes_ += token.bytes;
    special_[id] = token.is_special;
  }
  begins_.push_back(static_cast<uint32_t>(bytes_.size()));
}

void Vocabulary::Index(const std::vector<Token>& tokens, FileIssues* issues) {
  index_.assign(std::bit_ceil(2 * tokens.size() + 2), kNoToken);
  const size_t mask = index_.size() - 1;
  for (const Token& token : tokens) {
    if (!token.is_in_model) continue;
    size_t at = std::hash<std::string_view>{}(token.bytes) & mask;
    int probes = 0;
    while (index_[at] != kNoToken && probes < kMaxProbes &&
           Bytes(index_[at]) != token.bytes) {
      at = (at + 1) & mask;
      ++probes;
    }
    if (probes == kMaxProbes) {
      issues->Invalid("tokenizer.json: model.vocab",
                      "tokens are chosen to make a hash table slow");
      return;
    }
    if (index_[at] != kNoToken) {
      issues->Invalid(WhereToken(token.bytes), "a token is repeated");
    }
    index_[at] = token.id;
  }
}

std::optional<int32_t> Vocabulary::Find(std::string_view bytes) const {
  const size_t mask = index_.size() - 1;
  size_t at = std::hash<std::string_view>{}(bytes)&mask;
  while (index_[at] != kNoToken) {
    if (Bytes(index_[at]) == bytes) return index_[at];
    at = (at + 1) & mask;
  }
  return std::nullopt;
}

}  // namespace signet::text
