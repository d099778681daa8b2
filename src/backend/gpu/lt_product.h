#pragma once
// The vendor's matrix product, the yardstick of compute: its library is opened
// where it is installed, and nothing links it.

#include <optional>

#include "backend/gpu/vendor.h"

namespace signet::backend::gpu {

/// The best median time in seconds of one product of `n` x `n` bf16 matrices
/// on the current device. Unset where the library is not installed, or does
/// not know such a product.
std::optional<double> SecondsOfLtProduct(Stream stream, int n);

}  // namespace signet::backend::gpu
