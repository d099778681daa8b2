#pragma once
// Weights as stored, read as f32. Device code only.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "backend/views.h"

namespace signet::backend::gpu {

__device__ inline float ToFloat(float x) { return x; }
__device__ inline float ToFloat(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ inline float ToFloat(__half x) { return __half2float(x); }

/// Element `i` of a vector or matrix whose type is known only when it runs:
/// for the few values of norms and biases.
__device__ inline float LoadStored(const void* data, tensor::DType dtype,
                                   int64_t i) {
  switch (dtype) {
    case tensor::DType::kBF16:
      return ToFloat(static_cast<const __nv_bfloat16*>(data)[i]);
    case tensor::DType::kF16:
      return ToFloat(static_cast<const __half*>(data)[i]);
    default:
      return static_cast<const float*>(data)[i];
  }
}

/// Calls body(type pointer of null) for the element type: templates by dtype,
/// on the host.
template <typename Body>
void WithElement(tensor::DType dtype, const Body& body) {
  switch (dtype) {
    case tensor::DType::kBF16:
      return body(static_cast<const __nv_bfloat16*>(nullptr));
    case tensor::DType::kF16:
      return body(static_cast<const __half*>(nullptr));
    default:
      return body(static_cast<const float*>(nullptr));
  }
}

}  // namespace signet::backend::gpu
