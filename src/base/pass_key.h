#pragma once
// A parameter that only Holder can make: a function that takes a
// PassKey<Holder> can be called by Holder alone, checked at compile time.

namespace signet {

template <typename Holder>
class PassKey {
  friend Holder;
  explicit PassKey() = default;
};

}  // namespace signet
