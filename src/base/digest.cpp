#include "base/digest.h"

#include <fmt/format.h>
// The layout of the state, and code for the vectors this build may use: weights
// are digested at the speed of a load.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <utility>

namespace signet {

// Held by value: XXH3_createState gives null where there is no memory.
struct Digester::State {
  XXH3_state_t xxh;
  State() { XXH3_128bits_reset(&xxh); }
};

Digest Digest::Of(std::string_view bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return Digest(hash.high64, hash.low64);
}

std::string Digest::Hex() const {
  return fmt::format("{:016x}{:016x}", high_, low_);
}

Digester::Digester() : state_(std::make_unique<State>()) {}
Digester::~Digester() = default;
Digester::Digester(Digester&&) noexcept = default;
Digester& Digester::operator=(Digester&&) noexcept = default;

void Digester::Update(std::span<const std::byte> bytes) {
  XXH3_128bits_update(&state_->xxh, bytes.data(), bytes.size());
}

void Digester::Update(std::string_view text) {
  XXH3_128bits_update(&state_->xxh, text.data(), text.size());
}

Digest Digester::Finish() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(&state_->xxh);
  return Digest(hash.high64, hash.low64);
}

}  // namespace signet
