// Rows of the embedding table, converted to f32.

#include <cstdint>
#include <type_traits>

#include "backend/gpu/gpu_kernels.h"
#include "backend/gpu/stored.cuh"

namespace signet::backend::gpu {
namespace {

constexpr int kThreads = 256;
// Columns of a block.
constexpr int64_t kColumns = 2048;

template <typename T>
__global__ void __launch_bounds__(kThreads)
    EmbedKernel(const __grid_constant__ EmbedArgs args, bool vectors) {
  DependencyWait();
  const int64_t row = blockIdx.x;
  if (row >= __ldcg(args.rows.live)) return;
  const int64_t cols = args.table.cols;
  const T* from = static_cast<const T*>(args.table.data) +
                  static_cast<int64_t>(__ldcg(args.ids + row)) * cols;
  float* out = args.out + row * cols;
  const int64_t begin = blockIdx.y * kColumns;
  const int64_t end = begin + kColumns < cols ? begin + kColumns : cols;
  if (vectors) {
    struct alignas(4 * sizeof(T)) Four {
      T v[4];
    };
    for (int64_t i = begin + 4 * threadIdx.x; i < end; i += 4 * kThreads) {
      const Four four = *reinterpret_cast<const Four*>(from + i);
      *reinterpret_cast<float4*>(out + i) =
          make_float4(ToFloat(four.v[0]), ToFloat(four.v[1]),
                      ToFloat(four.v[2]), ToFloat(four.v[3]));
    }
    return;
  }
  for (int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
    out[i] = ToFloat(from[i]);
  }
}

}  // namespace

void GpuKernels::Embed(LaunchKey, const EmbedArgs& args) {
  if (args.rows.capacity == 0) return;
  const auto aligned = [](const void* p) {
    return reinterpret_cast<uintptr_t>(p) % 16 == 0;
  };
  const bool vectors =
      args.table.cols % 4 == 0 && aligned(args.table.data) && aligned(args.out);
  WithElement(args.table.dtype, [&](auto element) {
    using T = std::remove_const_t<std::remove_pointer_t<decltype(element)>>;
    Check(LaunchRows(args.rows.capacity, &EmbedKernel<T>,
                     dim3(static_cast<unsigned>(args.rows.capacity),
                          static_cast<unsigned>(
                              (args.table.cols + kColumns - 1) / kColumns)),
                     dim3(kThreads), 0, stream_, args, vectors));
  });
}

}  // namespace signet::backend::gpu
