#pragma once
// The batch shapes programs are made for (contract G5): a fixed list per plan.

#include <cstdint>
#include <string>
#include <string_view>

namespace signet::plan {

enum class ShapeKind { kDecode, kPrefill };
enum class LogitsOf { kLastRow, kEveryRow };

/// Decode: `rows` sequences, one row each; logits of every row. Prefill: up to
/// `rows` rows of one sequence.
struct ProgramShape {
  ShapeKind kind = ShapeKind::kDecode;
  int64_t rows = 1;  // B
  LogitsOf logits = LogitsOf::kEveryRow;

  int64_t logit_rows() const {
    return logits == LogitsOf::kEveryRow ? rows : 1;
  }
  friend bool operator==(const ProgramShape&, const ProgramShape&) = default;
};

constexpr std::string_view Name(ShapeKind kind) {
  return kind == ShapeKind::kDecode ? "decode" : "prefill";
}
constexpr std::string_view Name(LogitsOf logits) {
  return logits == LogitsOf::kEveryRow ? "all" : "last";
}

}  // namespace signet::plan
