#pragma once
// The chunk of the chunked DeltaNet form and the scratch it needs per value
// head (reference: Yang et al., "Parallelizing Linear Transformers with the
// Delta Rule over Sequence Length", 2024, and "Gated Delta Networks", 2024).

#include <cstdint>

namespace signet::tensor {

inline constexpr int64_t kDeltaChunk = 64;

/// Scratch floats of one value head: q, k and the decayed keys [C, dk] three
/// times and one more for W, v, U and o [C, dv] three times, A and T [C, C]
/// twice, and five vectors [C].
constexpr int64_t DeltaScratchFloats(int64_t key_dim, int64_t value_dim) {
  return kDeltaChunk *
         (4 * key_dim + 3 * value_dim + 2 * kDeltaChunk + 5);
}

}  // namespace signet::tensor
