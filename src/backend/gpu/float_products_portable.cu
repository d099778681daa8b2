// Products of f32 inputs where decoding seldom goes: rows of weights that one
// warp takes, inputs too large for shared memory, and any shape, dtype and
// alignment.

#include "backend/gpu/float_products.cuh"

namespace signet::backend::gpu {
namespace {

template <FloatPath kPath, int kWarps>
Status RunBatches(Stream stream, const FloatConfig& config,
                  const FloatKernelArgs& args) {
  switch (config.batch) {
    case 1:
      return RunShape<kPath, DotShape<kWarps, 4, 2, 1>>(stream, config, args);
    case 2:
      return RunShape<kPath, DotShape<kWarps, 4, 2, 2>>(stream, config, args);
    case 4:
      return RunShape<kPath, DotShape<kWarps, 4, 2, 4>>(stream, config, args);
    default:
      return RunShape<kPath, DotShape<kWarps, 4, 1, 8>>(stream, config, args);
  }
}

template <int kWarps>
Status RunPortableTeams(Stream stream, const FloatConfig& config,
                        const FloatKernelArgs& args) {
  if (config.batch == 1) {
    return RunShape<FloatPath::kPortable, DotShape<kWarps, 2, 1, 1>>(
        stream, config, args);
  }
  return RunShape<FloatPath::kPortable, DotShape<kWarps, 2, 1, 8>>(
      stream, config, args);
}

}  // namespace

Status RunSharedShort(Stream stream, const FloatConfig& config,
                      const FloatKernelArgs& args) {
  if (config.batch == 1) {
    return args.octets <= 8 * kWarpSize
               ? RunShape<FloatPath::kShared, DotShape<1, 2, 8, 1, true>>(
                     stream, config, args)
               : RunShape<FloatPath::kShared, DotShape<1, 2, 8, 1>>(
                     stream, config, args);
  }
  return RunBatches<FloatPath::kShared, 1>(stream, config, args);
}

Status RunStreamed(Stream stream, const FloatConfig& config,
                   const FloatKernelArgs& args) {
  return RunBatches<FloatPath::kStreamed, kTeamWarps>(stream, config, args);
}

Status RunPortable(Stream stream, const FloatConfig& config,
                   const FloatKernelArgs& args) {
  return config.dot_warps == 1
             ? RunPortableTeams<1>(stream, config, args)
             : RunPortableTeams<kTeamWarps>(stream, config, args);
}

}  // namespace signet::backend::gpu
