// The causal depthwise convolution before the delta rule, with silu. A thread
// owns channels of a tile of consecutive rows. The first tile of a sequence
// alone reads the state before the call, and then writes the state after it;
// every other tile takes the columns before it from the call.

#include <type_traits>

#include "backend/gpu/conv.cuh"
#include "backend/gpu/delta_config.h"
#include "backend/gpu/gpu_kernels.h"

namespace signet::backend::gpu {
namespace {

// The rows of one thread and the sequence they belong to.
struct Tile {
  int64_t begin;    // first row of the sequence in the call
  int64_t end;      // past its last row
  int64_t first;    // first row of the tile
  int64_t last;     // past its last row
  const float* u;   // [rows, channels], at the thread's first channel
  float* state;     // of that channel
  bool from_start;  // the sequence begins in this call
};

// False if the tile has no live row.
__device__ inline bool FindTile(const ConvArgs& args, int64_t channel,
                                Tile& tile) {
  const int64_t live = *args.rows.live;
  if (args.form == RowForm::kSequenceEach) {
    tile.begin = tile.first = blockIdx.y;
    tile.end = tile.last = tile.begin + 1;
    if (tile.first >= live) return false;
  } else {
    tile.begin = 0;
    tile.end = live;
    tile.first = int64_t{blockIdx.y} * kConvTileRows;
    tile.last = min(tile.first + kConvTileRows, live);
    if (tile.first >= live) return false;
  }
  const int64_t channels = args.weight.rows;
  const int64_t slot = args.rows.slot[tile.begin];
  tile.from_start = args.rows.position[tile.begin] == 0;
  tile.u = args.u + channel;
  tile.state =
      args.state + (slot * channels + channel) * (args.weight.cols - 1);
  return true;
}

// Any taps and any number of channels: one channel a thread.
template <typename W>
__global__ void __launch_bounds__(kConvThreads)
    ConvChannel(const ConvArgs args) {
  DependencyWait();
  const int64_t channels = args.weight.rows;
  const int history = static_cast<int>(args.weight.cols) - 1;
  const int64_t channel = int64_t{blockIdx.x} * kConvThreads + threadIdx.x;
  Tile tile;
  if (channel >= channels || !FindTile(args, channel, tile)) return;
  // Column `row` of the sequence, in the call or before it.
  const auto column = [&](int64_t row) {
    if (row >= tile.begin) return tile.u[row * channels];
    return tile.from_start ? 0.0f : tile.state[row - tile.begin + history];
  };
  const W* weight =
      static_cast<const W*>(args.weight.data) + channel * (history + 1);
  for (int64_t row = tile.first; row < tile.last; ++row) {
    float sum = 0;
    for (int j = 0; j <= history; ++j) {
      sum = __fmaf_rn(ToFloat(weight[j]), column(row - history + j), sum);
    }
    args.out[row * channels + channel] = Silu(sum);
  }
  if (tile.first != tile.begin) return;
  // Ascending: what is still to be read lies behind what is written.
  for (int j = 0; j < history; ++j) {
    tile.state[j] = column(tile.end - history + j);
  }
}

__device__ inline float4 Load4(const float* x) {
  return *reinterpret_cast<const float4*>(x);
}
__device__ inline void Store4(float* x, float4 value) {
  *reinterpret_cast<float4*>(x) = value;
}

// The three columns before a row, of four channels.
struct History {
  float4 c0;  // oldest
  float4 c1;
  float4 c2;

  __device__ void Push(float4 u) {
    c0 = c1;
    c1 = c2;
    c2 = u;
  }
};

// The state holds the columns of a channel side by side.
__device__ inline History LoadState(const float* state) {
  const float4 a = Load4(state);
  const float4 b = Load4(state + 4);
  const float4 c = Load4(state + 8);
  return {{a.x, a.w, b.z, c.y}, {a.y, b.x, b.w, c.z}, {a.z, b.y, c.x, c.w}};
}
__device__ inline void StoreState(float* state, const History& h) {
  Store4(state, {h.c0.x, h.c1.x, h.c2.x, h.c0.y});
  Store4(state + 4, {h.c1.y, h.c2.y, h.c0.z, h.c1.z});
  Store4(state + 8, {h.c2.z, h.c0.w, h.c1.w, h.c2.w});
}

// Four taps, four channels a thread, addresses of 16 bytes.
template <typename W>
__global__ void __launch_bounds__(kConvThreads)
    ConvVectors(const ConvArgs args) {
  const int64_t channels = args.weight.rows;
  const int64_t channel =
      4 * (int64_t{blockIdx.x} * kConvThreads + threadIdx.x);
  if (channel >= channels) {
    DependencyWait();
    return;
  }
  Taps taps[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    taps[i] = LoadTaps(static_cast<const W*>(args.weight.data), channel + i);
  }
  DependencyWait();
  Tile tile;
  if (!FindTile(args, channel, tile)) return;
  const float4 zero = {0, 0, 0, 0};
  const bool owner = tile.first == tile.begin;
  History before = {zero, zero, zero};
  if (!owner) {
    const float* u = tile.u + (tile.first - 3) * channels;
    before = {Load4(u), Load4(u + channels), Load4(u + 2 * channels)};
  } else if (!tile.from_start) {
    before = LoadState(tile.state);
  }
  History at = before;
  // Rows whose loads are in flight together, while those before are summed.
  constexpr int kBatch = 4;
  float4 next[kBatch] = {};
  const auto load = [&](int64_t row) {
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (row + i < tile.last) next[i] = Load4(tile.u + (row + i) * channels);
    }
  };
  load(tile.first);
  for (int64_t row = tile.first; row < tile.last; row += kBatch) {
    float4 u[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) u[i] = next[i];
    load(row + kBatch);
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (row + i >= tile.last) break;
      const float4 x = u[i];
      Store4(args.out + (row + i) * channels + channel,
             {ConvSilu(taps[0], at.c0.x, at.c1.x, at.c2.x, x.x),
              ConvSilu(taps[1], at.c0.y, at.c1.y, at.c2.y, x.y),
              ConvSilu(taps[2], at.c0.z, at.c1.z, at.c2.z, x.z),
              ConvSilu(taps[3], at.c0.w, at.c1.w, at.c2.w, x.w)});
      at.Push(x);
    }
  }
  if (!owner) return;
  if (tile.end > tile.last) {
    // The sequence goes on in other tiles, whose last rows are in the call.
    const float* u = tile.u + (tile.end - 3) * channels;
    at = {Load4(u), Load4(u + channels), Load4(u + 2 * channels)};
  }
  StoreState(tile.state, at);
}

}  // namespace

void GpuKernels::Conv(LaunchKey, const ConvArgs& args) {
  const ConvConfig config = ConfigOf(ConvDesc{
      .form = args.form,
      .capacity = args.rows.capacity,
      .channels = args.weight.rows,
      .taps = args.weight.cols,
      .aligned = Aligned16({args.u, args.weight.data, args.state, args.out})});
  const dim3 grid(static_cast<unsigned>(config.blocks),
                  static_cast<unsigned>(config.row_tiles));
  WithElement(args.weight.dtype, [&](const auto* element) {
    using W = std::remove_cvref_t<decltype(*element)>;
    const auto kernel = config.channels == 4 ? ConvVectors<W> : ConvChannel<W>;
    Check(Launch(kernel, grid, kConvThreads, 0, stream_, args));
  });
}

}  // namespace signet::backend::gpu
