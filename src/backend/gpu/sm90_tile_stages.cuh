#pragma once
// How tiles of x and of packed weights come to the warpgroups that multiply:
// stages of shared memory, 64 elements of cols each. Boxes of matrices come by
// the copy engine, rows of x that a grouped product gathers by the threads.

#include <cstdint>

#include "backend/gpu/product_config.h"
#include "backend/gpu/product_operands.cuh"
#include "backend/gpu/product_operands.h"
#include "backend/gpu/sm80_mma.cuh"
#include "backend/gpu/sm90_barrier.cuh"
#include "backend/gpu/sm90_bulk.cuh"
#include "backend/gpu/sm90_tensor_map.h"
#include "backend/gpu/sm90_tile_runs.cuh"
#include "backend/gpu/sm90_wgmma.cuh"
#include "backend/gpu/vendor.h"

namespace signet::backend::gpu {

/// A tile of up to kRows rows of x by kColumns rows of weights. Each has stages
/// of its own, 64 elements long, as sm90_wgmma.cuh wants them: weights come
/// from memory and want many under way, rows of x from the cache.
template <int kRows_, int kWeightStages_, int kInputStages_>
struct WarpgroupTile {
  static constexpr int kRows = kRows_;
  static constexpr int kWeightStages = kWeightStages_;
  static constexpr int kInputStages = kInputStages_;
  static constexpr int kColumns = kWarpgroupColumns;
  static constexpr int kRowBytes = 2 * kTileStep;
  static constexpr int kWeightBytes = kColumns * kRowBytes;
  static constexpr int kInputBytes = kRows * kRowBytes;
  static constexpr int kInputsAt = kWeightStages * kWeightBytes;
  static constexpr int kAlign = 1024;
  static constexpr int kSharedBytes =
      kInputsAt + kInputStages * kInputBytes + kAlign;
  static constexpr int kThreads = 3 * kWarpgroupThreads;
  // Of the warpgroup that brings, one warp brings weights.
  static constexpr int kInputWarps = kWarpgroupThreads / kWarpSize - 1;
  static_assert(kColumns == 2 * kWarpgroupRows && kRows % 64 == 0 &&
                kRows <= 256);
};

/// How a launch finds its matrices.
struct TileMaps {
  // Of the parts of a dense product, or of gate or down, and up; else a warp
  // copies the weights.
  bool has_weights = false;
  TensorMap weights[kMaxDenseParts];
  // Of a dense product, always.
  int input_rows = 0;  // of a box
  TensorMap inputs;
};

/// Stages that are full, by what brings them, and empty, by the warps that
/// multiply; in shared memory.
template <int kStages>
struct StageBarriers {
  Barrier full[kStages];
  Barrier empty[kStages];

  __device__ void Open() {
    for (int s = 0; s < kStages; ++s) {
      full[s].Open(1);
      empty[s].Open(2 * kWarpgroupThreads / kWarpSize);
    }
  }
};

template <typename T>
struct TileBarriers {
  StageBarriers<T::kWeightStages> weights;
  StageBarriers<T::kInputStages> inputs;
};

/// A stage and which phase of its barriers comes next.
template <int kStages>
struct StageAt {
  int index = 0;
  int parity = 0;
  __device__ void Advance() {
    if (++index == kStages) {
      index = 0;
      parity ^= 1;
    }
  }
};

/// Rows of x that two items take, by each warp that copies them; in shared
/// memory.
template <typename T>
struct InputRows {
  int32_t of_item[T::kInputWarps][2][T::kRows];
};

/// What brings tiles: a warp's part of it.
template <typename T>
class TileBringer {
 public:
  __device__ TileBringer(const Operands& op, const TileMaps& maps,
                         const Items& items, uint32_t stages,
                         TileBarriers<T>& barriers)
      : op_(op),
        maps_(maps),
        items_(items),
        barriers_(barriers),
        stages_(stages),
        cols_(static_cast<int>(op.cols)),
        lane_(static_cast<int>(threadIdx.x) % kWarpSize) {}

  /// The weights of all items of the block.
  __device__ void BringWeights() const {
    StageAt<T::kWeightStages> stage;
    Panel panel;
    for (int64_t item = blockIdx.x;
         FindItem(op_, items_, item, T::kRows, T::kColumns, &panel);
         item += gridDim.x) {
#pragma unroll 1
      for (int k = 0; k < cols_; k += kTileStep) {
        barriers_.weights.empty[stage.index].Await(stage.parity ^ 1);
        const uint32_t to =
            stages_ + static_cast<uint32_t>(stage.index * T::kWeightBytes);
        Barrier& full = barriers_.weights.full[stage.index];
        if (!maps_.has_weights) {
          const int count = min(panel.columns, T::kColumns);
          for (int row = lane_ / 8; row < count; row += kApart) {
            Copy(row, panel.matrix, panel.first_column + row, k, to);
          }
          ShowTo(full);
        } else if (lane_ == 0) {
          full.Expect(T::kWeightBytes);
          StartBoxCopy(to, maps_.weights[panel.index], k,
                       static_cast<int>(panel.first_column), panel.expert,
                       full);
        }
        stage.Advance();
      }
    }
  }

  /// The rows of x of a dense product: by one warp.
  __device__ void BringInputs() const {
    if (lane_ != 0) return;
    BulkCopies::SeeEarlierWrites();
    const auto bytes = static_cast<uint32_t>(maps_.input_rows * T::kRowBytes);
    StageAt<T::kInputStages> stage;
    Panel panel;
    for (int64_t item = blockIdx.x;
         FindItem(op_, items_, item, T::kRows, T::kColumns, &panel);
         item += gridDim.x) {
      const auto first = static_cast<int>(InputRow(op_, panel, 0));
      for (int k = 0; k < cols_; k += kTileStep) {
        const uint32_t to = AwaitInput(stage);
        Barrier& full = barriers_.inputs.full[stage.index];
        full.Expect(bytes);
        StartBoxCopy(to, maps_.inputs, k, first, 0, full);
        stage.Advance();
      }
    }
  }

  /// The same of a grouped product, by kInputWarps warps that take turns, a
  /// step each: so a warp may wait for its own copies, as the fence after them
  /// does anyhow. What has to be looked up of an item is asked for one item
  /// ahead.
  __device__ void GatherInputs(int warp, int32_t (*rows)[T::kRows]) const {
    const int steps = TilesOf(cols_, kTileStep);
    StageAt<T::kInputStages> stage;
    int turn = 0;  // of the warp whose step is next
    int64_t item = blockIdx.x;
    int buffer = 0;
    int next = Find(item, rows[buffer]);
    while (next > 0) {
      WaitCopyGroups<0>();
      const int count = next;
      int32_t* own = rows[buffer];
      // Slots become rows of x.
      for (int i = lane_; i < count; i += kWarpSize) {
        own[i] /= op_.slots_per_input;
      }
      __syncwarp();
      item += gridDim.x;
      buffer ^= 1;
      next = Find(item, rows[buffer]);
#pragma unroll 1
      for (int step = 0; step < steps; ++step) {
        if (turn == warp) {
          const uint32_t to = AwaitInput(stage);
          Gather(own, count, step * kTileStep, to);
          ShowTo(barriers_.inputs.full[stage.index]);
        }
        turn = (turn + 1) % T::kInputWarps;
        stage.Advance();
      }
    }
  }

 private:
  // Eight lanes copy a row.
  static constexpr int kApart = kWarpSize / 8;

  __device__ __forceinline__ uint32_t
  AwaitInput(const StageAt<T::kInputStages>& stage) const {
    barriers_.inputs.empty[stage.index].Await(stage.parity ^ 1);
    return stages_ + T::kInputsAt +
           static_cast<uint32_t>(stage.index * T::kInputBytes);
  }
  /// How many rows an item has, and asks for their slots; 0: no item.
  __device__ __forceinline__ int Find(int64_t item, int32_t* rows) const {
    Panel panel;
    if (!FindItem(op_, items_, item, T::kRows, T::kColumns, &panel)) return 0;
    __syncwarp();  // all lanes are done with what `rows` held
    for (int i = lane_; i < panel.rows; i += kWarpSize) {
      StartCopy4(SharedAddress(rows + i),
                 op_.sorted_slot + panel.first_row + i);
    }
    EndCopyGroup();
    return panel.rows;
  }
  /// This lane's pieces of the rows of x that `rows` names: every fourth one.
  __device__ __forceinline__ void Gather(const int32_t* rows, int count, int k,
                                         uint32_t stage) const {
    const int first = lane_ / 8;
    const int piece = lane_ % 8;
    const bool inside = k + 8 * piece < cols_;
    const char* x =
        static_cast<const char*>(op_.x) + int64_t{2} * (k + 8 * piece);
    // Of an eighth row on, pieces are permuted alike.
    uint32_t even = stage + static_cast<uint32_t>(first * T::kRowBytes +
                                                  ((piece ^ first) << 4));
    uint32_t odd =
        stage + static_cast<uint32_t>((first + kApart) * T::kRowBytes +
                                      ((piece ^ (first + kApart)) << 4));
    const int32_t* from = rows + first;
#pragma unroll 8
    for (int row = first; row < count; row += 2 * kApart) {
      StartCopy16(even, x + int64_t{2} * from[0] * cols_, inside);
      if (row + kApart < count) {
        StartCopy16(odd, x + int64_t{2} * from[kApart] * cols_, inside);
      }
      from += 2 * kApart;
      even += 2 * kApart * T::kRowBytes;
      odd += 2 * kApart * T::kRowBytes;
    }
  }
  /// This lane's piece of row `from` of a matrix, 64 elements from k on, to row
  /// `row` of a stage.
  __device__ __forceinline__ void Copy(int row, const void* matrix,
                                       int64_t from, int k,
                                       uint32_t stage) const {
    const int piece = lane_ % 8;
    StartCopy16(
        stage + static_cast<uint32_t>(row * T::kRowBytes +
                                      ((piece ^ row % 8) << 4)),
        static_cast<const char*>(matrix) + 2 * (from * cols_ + k + 8 * piece),
        k + 8 * piece < cols_);
  }
  /// Waits for the copies of this warp.
  __device__ __forceinline__ void ShowTo(Barrier& full) const {
    EndCopyGroup();
    WaitCopyGroups<0>();
    ShowCopies();
    __syncwarp();
    if (lane_ == 0) full.Arrive();
  }

  const Operands& op_;
  const TileMaps& maps_;
  const Items& items_;
  TileBarriers<T>& barriers_;
  const uint32_t stages_;
  const int cols_;
  const int lane_;
};

}  // namespace signet::backend::gpu
