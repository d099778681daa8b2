#pragma once
// Down of the selected experts and of the shared one, the canonical fold, the
// gated add and the residual in one short kernel, for up to eight rows and
// slots of narrow experts with bf16 weights.

#include "backend/fused_kernels.h"
#include "backend/gpu/vendor.h"

namespace signet::backend::gpu {

/// Whether this kernel takes the launch.
bool TakesMoeTail(const MoeTailArgs& args);

/// The bits of the six steps. Only where TakesMoeTail says so.
Status RunMoeTail(Stream stream, int num_sms, const MoeTailArgs& args);

}  // namespace signet::backend::gpu
