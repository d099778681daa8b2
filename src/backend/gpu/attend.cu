// Query and key norms, rotation, KV append and attention of decode rows in one
// launch, and one more for rows of several splits.

#include "backend/gpu/attention_decode.cuh"
#include "backend/gpu/gpu_kernels.h"

namespace signet::backend::gpu {
namespace {

// Of what only the fused kernel reads 16 bytes at a time.
bool Aligned(const AttendArgs& args) {
  for (const float* address : {args.rope.q_gate, args.rope.k, args.append.v}) {
    if (reinterpret_cast<uintptr_t>(address) % 16 != 0) return false;
  }
  return true;
}

}  // namespace

void GpuKernels::Attend(LaunchKey key, const AttendArgs& args) {
  SplitAttention attention =
      MakeSplitAttention(args.attention, scratch_, kSplitBytes);
  // A row of a sequence with others reads what their blocks append.
  if (attention.config.kernel != AttentionKernel::kDecode ||
      args.attention.form != RowForm::kSequenceEach || !Aligned(args)) {
    QkNormRope(key, args.rope);
    KvAppend(key, args.append);
    Attention(key, args.attention);
    return;
  }
  attention.ops = args;
  Check(LaunchDecodeAs<true>(stream_, attention));
  if (attention.config.rule.max_splits > 1) {
    Check(LaunchMerge(stream_, attention));
  }
}

}  // namespace signet::backend::gpu
