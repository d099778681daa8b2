#pragma once
// The widest head the CPU kernels hold on their stacks.

#include <cstdint>

namespace signet::backend::cpu {

/// Of attention (head_dim) and of the delta rule (key and value).
inline constexpr int64_t kMaxHeadDim = 512;

}  // namespace signet::backend::cpu
