#pragma once
// Products of the same f32 input rows in one launch, with what may stand before
// and after them: a norm of the input, the activation of the last product, a
// residual. The plain product and the fused launches are all this one kernel.

#include <array>
#include <cstdint>

#include "backend/fused_kernels.h"
#include "backend/gpu/vendor.h"
#include "backend/views.h"

namespace signet::backend::gpu {

struct FloatPart {
  const void* weight = nullptr;  // [rows, cols]
  int64_t rows = 0;
  float* out = nullptr;  // [capacity or 1, rows]
};

struct FloatProducts {
  const int32_t* live = nullptr;  // [1], on the device
  int64_t capacity = 0;
  bool last_row = false;     // only row *live - 1, to row 0 of the outputs
  const float* x = nullptr;  // [capacity, cols]
  int64_t cols = 0;
  tensor::DType dtype = tensor::DType::kBF16;  // of all weights
  std::array<FloatPart, kMaxFusedProducts> parts;
  int num_parts = 0;
  // The norm of x, which the products then take in its place.
  bool norm = false;
  VectorView norm_weight;
  float norm_offset = 0.0f;
  float norm_eps = 0.0f;
  float* normed = nullptr;  // [capacity, cols], or null: not kept
  // With weights here, the last part is gate, and its output
  // silu(gate) * up.
  const void* up_weight = nullptr;
  // Added to the only part's output.
  const float* residual = nullptr;
};

/// Whether one launch can do it; a product alone always can.
bool CanFuse(const FloatProducts& products, int num_sms);

Status MultiplyFloats(Stream stream, int num_sms,
                      const FloatProducts& products);

}  // namespace signet::backend::gpu
