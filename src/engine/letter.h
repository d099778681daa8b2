#pragma once
// What one process tells the others at a phase of a run: an error, or facts.
// A list of strings as bytes; both ends are the same build, or find out that
// they are not before any error travels.

#include <optional>
#include <string>
#include <string_view>

#include "engine/world_impl.h"
#include "signet/error.h"

namespace signet {

struct Letter {
  std::string phase;
  std::optional<Error> error;
  Facts facts;
};

std::string Write(const Letter& letter);
/// Nothing for bytes that are no letter.
std::optional<Letter> ReadLetter(std::string_view bytes);

}  // namespace signet
