#pragma once
// The line of figures below what was generated.

#include <span>
#include <string>

#include "cli/json_output.h"

namespace signet::cli {

/// `12 tokens, 3.4 tok/s, first token after 5.6 ms`, `, interrupted` behind it
/// if a SIGINT ended it.
std::string NumbersOf(const EndEvent& end);

/// `3 prompts, 36 tokens, 7.8 tok/s`: all of them in `seconds`.
std::string NumbersOf(std::span<const Generated> all, double seconds);

}  // namespace signet::cli
