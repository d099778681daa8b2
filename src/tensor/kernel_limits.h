#pragma once
// The widest shapes that kernels hold on their stacks. Admission refuses what
// is wider before anything is allocated.

#include <cstdint>

namespace signet::tensor {

/// Of attention heads and of the delta rule's keys and values.
inline constexpr int64_t kMaxHeadDim = 512;
/// Taps of the depthwise convolution.
inline constexpr int64_t kMaxConvTaps = 16;

}  // namespace signet::tensor
