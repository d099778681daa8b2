#pragma once
// A tokenizer for checkpoints that have none: the 256 bytes, then numbered
// filler tokens up to the vocabulary, so that every id prints as something and
// any text can be encoded. Pure functions; any thread.

#include <cstdint>
#include <string>

namespace signet::model {

/// One token a byte.
inline constexpr int64_t kNumByteTokens = 256;

/// A tokenizer.json of `vocab` tokens, at least kNumByteTokens: ids 0 to 255
/// are the bytes, id n above is `<filler` n `>`.
std::string FillerTokenizerJson(int64_t vocab);

}  // namespace signet::model
