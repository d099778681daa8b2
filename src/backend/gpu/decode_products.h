#pragma once
// Products of one input row with whole rows of bf16 weights, with what stands
// before and after: the launches of decoding at batch 1.

#include <cstdint>

#include "backend/fused_kernels.h"
#include "backend/gpu/float_products.h"
#include "backend/gpu/vendor.h"

namespace signet::backend::gpu {

/// Whether this kernel takes the products: one row of whole steps.
bool TakesOneRow(const FloatProducts& products);

/// The same bits as MultiplyFloats. Only where TakesOneRow says so.
Status MultiplyOneRow(Stream stream, int num_sms,
                      const FloatProducts& products);

}  // namespace signet::backend::gpu
