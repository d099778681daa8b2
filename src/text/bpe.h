#pragma once
// Byte-pair encoding of one piece of text. Immutable; any thread.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "text/pair_table.h"

namespace signet::text {

class Bpe {
 public:
  /// The token of every byte that pieces may have.
  using ByteTokens = std::array<int32_t, 256>;

  /// `merges` maps a pair of tokens to its rank and the merged token; lower
  /// ranks merge first, at one rank the leftmost pair.
  Bpe(const ByteTokens& byte_tokens, PairTable merges);

  /// Appends the tokens of `piece`: n log n steps. `piece` has fewer than 2^31
  /// bytes.
  void Encode(std::string_view piece, std::vector<int32_t>* ids) const;

 private:
  // Rank and merged token of a pair; the greatest rank when there is none.
  PairTable::Value MergeOf(int32_t left, int32_t right) const;
  void EncodeShort(std::string_view piece, std::vector<int32_t>* ids) const;
  void EncodeLong(std::string_view piece, std::vector<int32_t>* ids) const;

  ByteTokens byte_tokens_;
  PairTable merges_;
};

}  // namespace signet::text
