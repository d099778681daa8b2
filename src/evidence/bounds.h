#pragma once
// How far sides may be apart whose sums run in another order (contract N5): the
// one committed table. A number is twice the worst measured on the demo and on
// generated checkpoints, as |difference|_2 / |reference|_2 of one position (of
// one layer, for residual and state). Sides whose sums run in one order have no
// row here: their bits are equal.

#include <array>
#include <optional>
#include <string_view>

#include "plan/expert_plan.h"

namespace signet::evidence {

struct Bounds {
  double residual;
  double state;
  double logits;
};

struct BoundsRow {
  std::string_view first_backend;
  std::string_view other_backend;
  plan::Parallelism experts;  // of the side with more `tp` ranks
  std::string_view format;    // of the weights
  Bounds bounds;
};

// Measured by tests/tools/measure_bounds.cpp: the demo and 30 generated
// checkpoints at tp=2 and tp=4, 256 positions each; cpu and gpu at 80 positions
// in chunks of 8, whose products take their inputs as they are. kSingle between
// two cpu sides: dense models.
inline constexpr std::array kBoundsTable = {
    BoundsRow{"cpu",
              "cpu",
              plan::Parallelism::kSingle,
              "bf16",
              {.residual = 1.8e-5, .state = 1.9e-5, .logits = 1.9e-5}},
    BoundsRow{"cpu",
              "cpu",
              plan::Parallelism::kOwned,
              "bf16",
              {.residual = 2.8e-4, .state = 3.0e-4, .logits = 2.4e-4}},
    BoundsRow{"cpu",
              "cpu",
              plan::Parallelism::kSplit,
              "bf16",
              {.residual = 3.2e-4, .state = 3.4e-4, .logits = 2.7e-4}},
    BoundsRow{"cpu",
              "gpu",
              plan::Parallelism::kSingle,
              "bf16",
              {.residual = 1.7e-4, .state = 1.4e-4, .logits = 1.8e-4}},
};

/// The row of a pair; unset where none is committed.
constexpr std::optional<Bounds> FindBounds(std::string_view first_backend,
                                           std::string_view other_backend,
                                           plan::Parallelism experts,
                                           std::string_view format) {
  for (const BoundsRow& row : kBoundsTable) {
    if (row.first_backend == first_backend &&
        row.other_backend == other_backend && row.experts == experts &&
        row.format == format) {
      return row.bounds;
    }
  }
  return std::nullopt;
}

/// The share of positions that may be excused by their margins.
inline constexpr double kMaxExcusedShare = 0.05;

}  // namespace signet::evidence
