#pragma once
// The basis in which a tensor's reduction dimension is expressed. A weight
// stored in a rotated basis needs its input in the same one; mixing them gives
// fluent wrong text, so the basis is part of every operand's type (S2).

#include <array>
#include <optional>
#include <string_view>

namespace signet::tensor {

enum class Basis {
  kNatural,
  kHadamard128,  // Walsh-Hadamard over blocks of 128
  kHadamard256,  // over blocks of 256
};

inline constexpr std::array<Basis, 3> kAllBases = {
    Basis::kNatural, Basis::kHadamard128, Basis::kHadamard256};

constexpr std::string_view Name(Basis basis) {
  switch (basis) {
    case Basis::kNatural:
      return "natural";
    case Basis::kHadamard128:
      return "hadamard128";
    case Basis::kHadamard256:
      return "hadamard256";
  }
  return "";
}

constexpr std::optional<Basis> ParseBasis(std::string_view name) {
  for (Basis basis : kAllBases) {
    if (Name(basis) == name) return basis;
  }
  return std::nullopt;
}

}  // namespace signet::tensor
