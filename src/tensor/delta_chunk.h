#pragma once
// The chunk of the chunked DeltaNet form and the scratch it needs per value
// head (reference: Yang et al., "Parallelizing Linear Transformers with the
// Delta Rule over Sequence Length", 2024, and "Gated Delta Networks", 2024).

#include <cstdint>

namespace signet::tensor {

inline constexpr int64_t kDeltaChunk = 64;

/// Scratch floats of one value head: queries and keys [C, dk], the keys turned
/// [dk, C], the solved values [C, dv], and two triangles [C, C].
constexpr int64_t DeltaScratchFloats(int64_t key_dim, int64_t value_dim) {
  return kDeltaChunk * (3 * key_dim + value_dim + 2 * kDeltaChunk);
}

}  // namespace signet::tensor
