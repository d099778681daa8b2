// New keys and values into the paged cache: a block does a row.

#include "backend/gpu/gpu_kernels.h"
#include "backend/gpu/kv_rows.cuh"

namespace signet::backend::gpu {
namespace {

constexpr int kThreads = 256;

__device__ void Store4(const float4& value, float* to) {
  *reinterpret_cast<float4*>(to) = value;
}
__device__ void Store4(const float4& value, __nv_bfloat16* to) {
  __nv_bfloat162 pairs[2] = {__floats2bfloat162_rn(value.x, value.y),
                             __floats2bfloat162_rn(value.z, value.w)};
  *reinterpret_cast<uint2*>(to) = *reinterpret_cast<uint2*>(pairs);
}

// kWide: four elements at a time. A token's heads lie together.
template <typename T, bool kWide>
__global__ void __launch_bounds__(kThreads)
    KvAppendKernel(const KvAppendArgs args) {
  DependencyWait();
  const int64_t row = blockIdx.x;
  if (row >= *args.rows.live) return;
  const int64_t width = args.cache.num_kv_heads * args.cache.head_dim;
  const int64_t offset =
      KvOffset(args.cache, args.rows.slot[row], args.rows.position[row], 0);
  constexpr int64_t kStep = kWide ? 4 : 1;
  for (int64_t i = threadIdx.x * kStep; i < 2 * width; i += kThreads * kStep) {
    const bool is_key = i < width;
    const int64_t e = is_key ? i : i - width;
    const float* from = (is_key ? args.k : args.v) + row * width + e;
    T* to = static_cast<T*>(is_key ? args.cache.k : args.cache.v) + offset + e;
    if constexpr (kWide) {
      Store4(*reinterpret_cast<const float4*>(from), to);
    } else {
      StoreElement(*from, to);
    }
  }
}

bool Aligned(const void* address) {
  return reinterpret_cast<uintptr_t>(address) % 16 == 0;
}

template <typename T>
auto KernelFor(const KvAppendArgs& args) {
  const bool wide = args.cache.num_kv_heads * args.cache.head_dim % 4 == 0 &&
                    Aligned(args.k) && Aligned(args.v) &&
                    Aligned(args.cache.k) && Aligned(args.cache.v);
  return wide ? KvAppendKernel<T, true> : KvAppendKernel<T, false>;
}

}  // namespace

void GpuKernels::KvAppend(LaunchKey, const KvAppendArgs& args) {
  Check(Launch(args.cache.dtype == tensor::DType::kBF16
                   ? KernelFor<__nv_bfloat16>(args)
                   : KernelFor<float>(args),
               dim3(static_cast<unsigned>(args.rows.capacity)), dim3(kThreads),
               0, stream_, args));
}

}  // namespace signet::backend::gpu
