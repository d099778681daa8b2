// Small copies between pinned host memory and the device: mirror.h says why.

#include "backend/gpu/mirror_parts.h"

namespace signet::backend::gpu {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocksAPart = 8;

// A block column a part; parts are aligned, their sizes are multiples of four.
__global__ void MirrorKernel(MirrorCopies copies) {
  DependencyWait();
  const int part = static_cast<int>(blockIdx.y);
  const auto* from = reinterpret_cast<const uint32_t*>(copies.from[part]);
  auto* to = reinterpret_cast<uint32_t*>(copies.to[part]);
  const uint64_t words = copies.bytes[part] / sizeof(uint32_t);
  for (uint64_t i = blockIdx.x * kThreads + threadIdx.x; i < words;
       i += gridDim.x * kThreads) {
    to[i] = __ldcv(from + i);
  }
}

}  // namespace

Status LaunchMirrorCopies(Stream stream, const MirrorCopies& copies) {
  return Launch(MirrorKernel,
                dim3(kBlocksAPart, static_cast<unsigned>(copies.count)),
                dim3(kThreads), 0, stream, copies);
}

}  // namespace signet::backend::gpu
