// Products of f32 inputs in shared memory with rows of weights that eight warps
// share: what decoding runs on.

#include "backend/gpu/float_products.cuh"

namespace signet::backend::gpu {
namespace {

template <int kRows, int kChunks, int kBatch>
Status RunStep(Stream stream, const FloatConfig& config,
               const FloatKernelArgs& args) {
  if (args.octets <= kChunks * kTeamThreads) {
    return RunShape<FloatPath::kShared,
                    DotShape<kTeamWarps, kRows, kChunks, kBatch, true>>(
        stream, config, args);
  }
  return RunShape<FloatPath::kShared,
                  DotShape<kTeamWarps, kRows, kChunks, kBatch>>(stream, config,
                                                                args);
}

// The steps that StepsOf in float_config.cpp offers.
template <int kBatch>
Status RunBatch(Stream stream, const FloatConfig& config,
                const FloatKernelArgs& args) {
  if constexpr (kBatch == 8) {
    return RunStep<4, 1, kBatch>(stream, config, args);
  } else {
    if (config.rows == 8) return RunStep<8, 1, kBatch>(stream, config, args);
    if constexpr (kBatch <= 2) {
      if (config.rows == 2) return RunStep<2, 4, kBatch>(stream, config, args);
    }
    return RunStep<4, 2, kBatch>(stream, config, args);
  }
}

}  // namespace

Status RunShared(Stream stream, const FloatConfig& config,
                 const FloatKernelArgs& args) {
  switch (config.batch) {
    case 1:
      return RunBatch<1>(stream, config, args);
    case 2:
      return RunBatch<2>(stream, config, args);
    case 4:
      return RunBatch<4>(stream, config, args);
    default:
      return RunBatch<8>(stream, config, args);
  }
}

}  // namespace signet::backend::gpu
