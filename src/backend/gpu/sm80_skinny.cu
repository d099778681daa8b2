// Launches of the skinny product.

#include <cstdint>

#include "backend/gpu/product_config.h"
#include "backend/gpu/product_operands.h"
#include "backend/gpu/sm80_skinny.cuh"
#include "backend/gpu/vendor.h"

namespace signet::backend::gpu {
namespace {

template <int kWeightTiles>
Status LaunchSkinny(Stream stream, int warps, const Operands& op) {
  using S = SkinnyShape<kWeightTiles>;
  const int64_t items = ItemsOf(op, S::kTokens, S::kColumns);
  if (items == 0) return kOk;
  const auto kernel = SkinnyKernel<kWeightTiles>;
  constexpr int kWarpBytes = S::kWarpSums * static_cast<int>(sizeof(float));
  const Status status =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           MaxSkinnyWarps(kWeightTiles) * kWarpBytes);
  if (status != kOk) return status;
  return Launch(kernel, dim3(static_cast<unsigned>(items)),
                dim3(static_cast<unsigned>(warps * kWarpSize)),
                static_cast<size_t>(warps * kWarpBytes), stream, op);
}

}  // namespace

Status MultiplySkinny(Stream stream, const SkinnyConfig& config,
                      const Operands& operands) {
  switch (config.weight_tiles) {
    case 8:
      return LaunchSkinny<8>(stream, config.warps, operands);
    case 4:
      return LaunchSkinny<4>(stream, config.warps, operands);
    default:
      return LaunchSkinny<2>(stream, config.warps, operands);
  }
}

}  // namespace signet::backend::gpu
