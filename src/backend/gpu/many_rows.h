#pragma once
// Products of many f32 input rows on the tensor cores: the scores of routers,
// whose input is never rounded (contract N1).

#include "backend/gpu/float_products.h"
#include "backend/gpu/vendor.h"

namespace signet::backend::gpu {

/// Whether this kernel takes them: by shapes and dtypes alone for operands that
/// lie at multiples of 16 bytes, as all of a plan do.
bool TakesManyRows(const FloatProducts& products);

/// Products alone, in an order of sums of their own; a row has the same bits
/// whichever rows it has beside it. Only where TakesManyRows says so.
Status MultiplyManyRows(Stream stream, const FloatProducts& products);

}  // namespace signet::backend::gpu
