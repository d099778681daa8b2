#pragma once
// Content digests: 128 bits of XXH3, printed as 32 hexadecimal digits. They
// tell versions apart; they are not a defence against a forger.

#include <array>
#include <compare>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace signet {

class Digest {
 public:
  constexpr Digest() = default;
  constexpr Digest(uint64_t high, uint64_t low) : high_(high), low_(low) {}
  static Digest Of(std::string_view bytes);
  std::string Hex() const;
  friend constexpr auto operator<=>(const Digest&, const Digest&) = default;

 private:
  uint64_t high_ = 0;
  uint64_t low_ = 0;
};

/// A digest of bytes that come in pieces. One thread.
class Digester {
 public:
  Digester();
  ~Digester();
  Digester(Digester&&) noexcept;
  Digester& operator=(Digester&&) noexcept;
  void Update(std::span<const std::byte> bytes);
  void Update(std::string_view text);
  Digest Finish() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace signet
