// Causal attention over the paged cache: the choice of a kernel.

#include "backend/gpu/attention_split.cuh"
#include "backend/gpu/gpu_kernels.h"
#include "base/check.h"

namespace signet::backend::gpu {
namespace {

bool Aligned(const AttentionArgs& args) {
  for (const void* address :
       {static_cast<const void*>(args.q), static_cast<const void*>(args.q_gate),
        static_cast<const void*>(args.cache.k),
        static_cast<const void*>(args.cache.v),
        static_cast<const void*>(args.out)}) {
    if (reinterpret_cast<uintptr_t>(address) % 16 != 0) return false;
  }
  return true;
}

}  // namespace

SplitAttention MakeSplitAttention(const AttentionArgs& args, void* scratch,
                                  int64_t scratch_bytes) {
  SIGNET_CHECK(args.cache.head_dim <= kMaxAttentionDim);
  SplitAttention attention;
  attention.ops.attention = args;
  attention.config = ConfigureAttention(
      {.form = args.form,
       .capacity = args.rows.capacity,
       .heads = args.heads,
       .kv_heads = args.cache.num_kv_heads,
       .head_dim = args.cache.head_dim,
       .page_size = args.cache.page_size,
       .context = args.cache.pages_per_slot * args.cache.page_size,
       .kv_dtype = args.cache.dtype,
       .aligned = Aligned(args),
       .scratch_bytes = scratch_bytes});
  attention.scratch = scratch;
  return attention;
}

void GpuKernels::Attention(LaunchKey, const AttentionArgs& args) {
  const SplitAttention attention =
      MakeSplitAttention(args, scratch_, kSplitBytes);
  switch (attention.config.kernel) {
    case AttentionKernel::kFlash:
      Check(LaunchFlash(stream_, args));
      return;
    case AttentionKernel::kWarpgroupFlash:
      Check(LaunchWarpgroupFlash(stream_, args));
      return;
    case AttentionKernel::kDecode:
      Check(LaunchDecode(stream_, attention));
      break;
    case AttentionKernel::kPlain:
      Check(LaunchPlain(stream_, attention));
      break;
  }
  if (attention.config.rule.max_splits > 1) {
    Check(LaunchMerge(stream_, attention));
  }
}

}  // namespace signet::backend::gpu
