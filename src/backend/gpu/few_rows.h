#pragma once
// Products of two to eight f32 input rows on the tensor cores: what decoding a
// small batch is made of, where multiply-adds alone cannot keep up with the
// memory.

#include "backend/gpu/float_products.h"
#include "backend/gpu/vendor.h"

namespace signet::backend::gpu {

/// Whether this kernel takes them: by shapes and dtypes alone for operands that
/// lie at multiples of 16 bytes, as all of a plan do.
bool TakesFewRows(const FloatProducts& products);

/// Norm, products, activation and residual as MultiplyFloats describes them, in
/// an order of sums of its own: whatever stands before and after a product, and
/// whichever rows it has beside it, a row has the same bits. Only where
/// TakesFewRows says so.
Status MultiplyFewRows(Stream stream, int num_sms,
                       const FloatProducts& products);

}  // namespace signet::backend::gpu
