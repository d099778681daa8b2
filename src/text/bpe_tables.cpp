#include "text/bpe_tables.h"

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

#include "text/byte_alphabet.h"

namespace signet::text {
namespace {

// Every byte of UTF-8 text needs a token: then none is ever unknown, and what
// the file says about unknown tokens never matters.
Bpe::ByteTokens MakeByteTokens(const Vocabulary& vocabulary,
                               FileIssues* issues) {
  Bpe::ByteTokens tokens;
  tokens.fill(-1);
  for (int byte = 0; byte < 256; ++byte) {
    const char value = static_cast<char>(byte);
    const std::optional<int32_t> id =
        vocabulary.Find(std::string_view(&value, 1));
    if (id) {
      tokens[byte] = *id;
    } else if (OccursInUtf8(static_cast<uint8_t>(byte))) {
      issues->Unsupported("tokenizer.json: model.vocab",
                          "a byte has no token and would be unknown",
                          fmt::format("0x{:02X}", byte));
    }
  }
  return tokens;
}

}  // namespace

std::optional<Bpe> MakeBpe(const std::vector<TokenizerDocument::Merge>& merges,
                           const Vocabulary& vocabulary, FileIssues* issues) {
  bool is_sound = true;
  const auto invalid = [&](size_t rank, std::string message, std::string got) {
    issues->Invalid(fmt::format("tokenizer.json: model.merges[{}]", rank),
                    std::move(message), std::move(got));
    is_sound = false;
  };
  PairTable table(merges.size());
  std::string bytes;
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const TokenizerDocument::Merge& merge = merges[rank];
    bytes.clear();
    const bool left_reads = AppendAlphabetBytes(merge.left, &bytes);
    const size_t left_size = bytes.size();
    const bool right_reads = AppendAlphabetBytes(merge.right, &bytes);
    const std::string_view whole = bytes;
    const auto find = [&](bool reads, std::string_view part) {
      return reads ? vocabulary.Find(part) : std::nullopt;
    };
    const auto left = find(left_reads, whole.substr(0, left_size));
    const auto right = find(right_reads, whole.substr(left_size));
    if (!left || !right) {
      invalid(rank, "a merge is of a token that is not in the vocabulary",
              Quoted(left ? merge.right : merge.left));
      continue;
    }
    const std::optional<int32_t> merged = vocabulary.Find(whole);
    if (!merged) {
      invalid(rank, "a merge makes a token that is not in the vocabulary",
              Quoted(merge.left + merge.right));
      continue;
    }
    switch (
        table.Insert(*left, *right, {static_cast<int32_t>(rank), *merged})) {
      case PairTable::Inserted::kNew:
        break;
      case PairTable::Inserted::kAlreadyThere:
        invalid(rank, "a merge is repeated", Quoted(merge.left + merge.right));
        break;
      case PairTable::Inserted::kCrowded:
        invalid(rank, "merges are chosen to make a hash table slow", {});
        return std::nullopt;
    }
  }
  const Bpe::ByteTokens byte_tokens = MakeByteTokens(vocabulary, issues);
  if (!is_sound) return std::nullopt;
  return Bpe(byte_tokens, std::move(table));
}

}  // namespace signet::text
