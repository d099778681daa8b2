#pragma once
// The added tokens of a checkpoint: those that tokenizer.json lists together
// with those of tokenizer_config.json, contradictions refused. Values.

#include <cstdint>
#include <string>
#include <vector>

#include "text/json_section.h"

namespace signet::text {

struct AddedToken {
  int32_t id;           // 0 ... kMaxTokenId
  std::string content;  // literal text, never empty
  bool special;
};

/// Every added token once, by ascending id; contents are distinct too. What is
/// malformed, contradictory or unsupported goes to the sections' issues.
std::vector<AddedToken> ReadAddedTokens(const JsonSection& tokenizer,
                                        const JsonSection& config);

}  // namespace signet::text
