#pragma once
// One dense product, x W^T, of the rows of a call: what the two families of
// kernels share. Inputs in f32 meet weights on the plain cores (few rows, bound
// by memory); inputs rounded to bf16 on the tensor cores (many rows).

#include <cstdint>
#include <span>

#include "backend/gpu/vendor.h"
#include "backend/views.h"

namespace signet::backend::gpu {

struct Product {
  const int32_t* live = nullptr;  // [1], on the device
  int64_t capacity = 0;           // rows of x at most
  bool last_row = false;  // only row *live - 1, to row 0 of out; else all rows
  const void* x = nullptr;  // [capacity, weight.cols], f32 or bf16
  WeightView weight;        // [N, cols]
  float* out = nullptr;     // [capacity or 1, N]
};

/// float_products.cu: x is f32.
Status MultiplyFloat(Stream stream, int num_sms, const Product& product);
/// rounded_products.cu: x is bf16; weights of another dtype than bf16 are
/// converted on the way, f32 and f16 ones rounded to bf16. Products of the same
/// rows; those that are cut alike share a launch.
Status MultiplyRounded(Stream stream, int num_sms,
                       std::span<const Product> products);

}  // namespace signet::backend::gpu
