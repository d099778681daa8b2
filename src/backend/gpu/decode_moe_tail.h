#pragma once
// Down of the selected experts and of the shared one, the canonical fold, the
// gated add and the residual in one short kernel, for up to eight rows and
// slots of narrow experts with bf16 weights.

#include "backend/fused_kernels.h"
#include "backend/gpu/decode_gate_up.h"
#include "backend/gpu/vendor.h"

namespace signet::backend::gpu {

/// Whether this kernel takes the launch.
bool TakesMoeTail(const MoeTailArgs& args);

/// The bits of the six steps. Only where TakesMoeTail says so.
/// `down` has the slots if the launch before wrote them.
Status RunMoeTail(Stream stream, int num_sms, const MoeTailArgs& args,
                  const DownSlots& down = {});

}  // namespace signet::backend::gpu
