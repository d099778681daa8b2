#pragma once
// Route, gate, up and activation of the selected experts in one short kernel,
// for up to eight rows of whole steps of bf16 weights.

#include "backend/fused_kernels.h"
#include "backend/gpu/vendor.h"

namespace signet::backend::gpu {

/// Whether this kernel takes the launch.
bool TakesGateUp(const RouteGateUpArgs& args);

/// The bits of Route, IndexedGateUp and Activation. Only where TakesGateUp says
/// so.
Status RunGateUp(Stream stream, int num_sms, const RouteGateUpArgs& args);

}  // namespace signet::backend::gpu
