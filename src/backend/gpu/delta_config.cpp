#include "backend/gpu/delta_config.h"

#include <algorithm>

namespace signet::backend::gpu {
namespace {

// Head dimensions the fast kernels are made for.
constexpr int64_t kFastDim = 128;
constexpr int64_t kFastTaps = 4;
// The most chunks side by side. What one launch leaves for the next, 1.7 MiB a
// chunk of 16 key heads and 32 value heads, does not stay in the L2 cache then,
// which costs less than to begin and end more launches.
constexpr int64_t kMostChunks = 128;
// The most blocks of a cluster that every Hopper device grants.
constexpr int64_t kMaxCluster = 8;

constexpr int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

ConvConfig ConfigOf(const ConvDesc& desc) {
  ConvConfig config;
  const bool vectors =
      desc.aligned && desc.taps == kFastTaps && desc.channels % 4 == 0;
  config.channels = vectors ? 4 : 1;
  config.blocks =
      CeilDivide(desc.channels, int64_t{config.channels} * kConvThreads);
  config.row_tiles = desc.form == RowForm::kSequenceEach
                         ? desc.capacity
                         : CeilDivide(desc.capacity, kConvTileRows);
  return config;
}

DeltaConfig ConfigOf(const DeltaDesc& desc) {
  DeltaConfig config;
  config.slices = CeilDivide(desc.value_dim, kDeltaColumns);
  config.calls = desc.form == DeltaForm::kRecurrent ? desc.capacity : 1;
  for (const int rows : {4, 16, 32, 64}) {
    config.rows_per_warp = rows;
    if (desc.key_dim <= int64_t{rows} * kDeltaWarps) break;
  }
  config.whole = desc.key_dim == int64_t{config.rows_per_warp} * kDeltaWarps &&
                 desc.value_dim % kDeltaColumns == 0;
  if (desc.form == DeltaForm::kChunked && desc.aligned &&
      desc.key_dim == kDeltaChunkKeys && desc.value_dim % kDeltaColumns == 0) {
    const int64_t chunks = CeilDivide(desc.capacity, kDeltaChunkTokens);
    config.chunks = std::min(
        {chunks, kMostChunks,
         desc.scratch_bytes / (desc.key_heads * kDeltaChunkKeyBytes +
                               desc.value_heads * kDeltaChunkHeadBytes)});
    if (config.chunks > 0) {
      config.segments = CeilDivide(chunks, config.chunks);
    }
  }
  return config;
}

DeltaMixConfig ConfigOf(const DeltaMixDesc& desc) {
  DeltaMixConfig config;
  if (!desc.aligned || desc.key_dim != kFastDim || desc.value_dim != kFastDim ||
      desc.taps != kFastTaps) {
    return config;
  }
  // All columns that read the channels of a key head are in one cluster, since
  // one of its blocks rewrites the state of those channels.
  const int64_t shared_by = desc.value_heads / desc.key_heads;
  for (const int columns : {kDeltaColumns, 2 * kDeltaColumns}) {
    const int64_t cluster = shared_by * (kFastDim / columns);
    if (cluster > kMaxCluster) continue;
    config.fused = true;
    config.columns = columns;
    config.cluster = static_cast<int>(cluster);
    break;
  }
  return config;
}

}  // namespace signet::backend::gpu
