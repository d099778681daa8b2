#pragma once
// How tiles of x and of packed weights come to the warpgroups that multiply:
// stages of shared memory, 64 elements of cols each. Boxes of matrices come by
// the copy engine; the blocks of a cluster have the same rows of x and columns
// beside each other, and each brings its share of x to all of them. Rows of x
// that a grouped product gathers come by threads.

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

/// Rows of x that one warp gathers at a time.
inline constexpr int kGatherRows = 32;

/// A tile of up to kRows rows of x by kColumns rows of weights. Each has stages
/// of its own, 64 elements long, as sm90_wgmma.cuh wants them: weights come
/// from memory and want many under way, rows of x from the cache.
template <int kRows_, int kWeightStages_, int kInputStages_, int kGatherers_,
          int kCluster_>
struct WarpgroupTile {
  static constexpr int kRows = kRows_;
  static constexpr int kWeightStages = kWeightStages_;
  static constexpr int kInputStages = kInputStages_;
  // Warps that gather the rows of a stage; 0: rows come in boxes.
  static constexpr int kGatherers = kGatherers_;
  static constexpr bool kGathers = kGatherers > 0;
  static constexpr int kCluster = kCluster_;  // blocks
  static constexpr int kColumns = kWarpgroupColumns;
  static constexpr int kRowBytes = 2 * kTileStep;
  static constexpr int kWeightBytes = kColumns * kRowBytes;
  static constexpr int kInputBytes = kRows * kRowBytes;
  static constexpr int kInputsAt = kWeightStages * kWeightBytes;
  static constexpr int kAlign = 1024;
  static constexpr int kSharedBytes =
      kInputsAt + kInputStages * kInputBytes + kAlign;
  static constexpr int kMultiplyingThreads = 2 * kWarpgroupThreads;
  static constexpr int kMultiplyingWarps = kMultiplyingThreads / kWarpSize;
  // A warp brings weights, the next ones bring x.
  static constexpr int kInputWarps = kGathers ? kInputStages * kGatherers : 1;
  static constexpr int kBringingThreads =
      kGathers ? (kInputWarps / 4 + 1) * kWarpgroupThreads : 2 * kWarpSize;
  static constexpr int kThreads = kMultiplyingThreads + kBringingThreads;
  // What a large block begins with a thread, and how it deals it out.
  static constexpr int kRegisters = (64 << 10) / kThreads / 8 * 8;
  static constexpr int kBringingRegisters = kThreads > 512 ? 48 : 56;
  static constexpr int kMultiplyingRegisters =
      (kRegisters * kThreads - kBringingRegisters * kBringingThreads) /
      kMultiplyingThreads / 8 * 8;
  static_assert(kColumns == 2 * kWarpgroupRows && kRows % 64 == 0 &&
                kRows <= 256);
  static_assert((1 + kInputWarps) * kWarpSize <= kBringingThreads);
  static_assert(!kGathers || kCluster == 1);
  // Rows of x that are gathered are dealt in groups.
  static constexpr int kGroupBytes = kGatherRows * kRowBytes;
  static constexpr int kGroupsOfGatherer =
      kGathers ? kRows / kGatherRows / kGatherers : 0;
};

/// How a launch finds its matrices.
struct TileMaps {
  // Of the parts of a dense product, or of gate or down, and up; else a warp
  // copies the weights.
  bool has_weights = false;
  TensorMap weights[kMaxDenseParts];
  // Of x, of a dense product.
  int input_rows = 0;  // of a box
  TensorMap inputs;
};

/// Stages that are full, by what brings them, and empty, by the warps that
/// multiply: of all blocks that the stage is filled for; in shared memory.
template <int kStages>
struct StageBarriers {
  Barrier full[kStages];
  Barrier empty[kStages];

  __device__ void Open(int bringing_warps, int multiplying_warps) {
    for (int s = 0; s < kStages; ++s) {
      full[s].Open(bringing_warps);
      empty[s].Open(multiplying_warps);
    }
  }
};

template <typename T>
struct TileBarriers {
  StageBarriers<T::kWeightStages> weights;
  StageBarriers<T::kInputStages> inputs;

  __device__ void Open() {
    weights.Open(1, T::kMultiplyingWarps);
    inputs.Open(T::kGathers ? T::kGatherers : 1,
                T::kMultiplyingWarps * T::kCluster);
  }
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

/// The rows of x that a warp gathers for an item, in groups. A lane copies rows
/// lane / 8 + 4 i of a group: they lie side by side.
template <typename T>
struct GatheredRows {
  int4 groups[T::kGroupsOfGatherer][4][2];

  __device__ __forceinline__ int32_t& At(int group, int row) {
    return reinterpret_cast<int32_t*>(&groups[group][row % 4])[row / 4];
  }
};

/// Of two items, by each warp that gathers them; in shared memory.
template <typename T>
struct GatheredItems {
  GatheredRows<T> of_warp[T::kInputWarps][2];
};
template <typename T>
  requires(!T::kGathers)
struct GatheredItems<T> {};

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

  /// The weights of all items of the block, by one warp.
  __device__ void BringWeights() const {
    StageAt<T::kWeightStages> stage;
    Panel panel;
    for (ItemWalk<T> walk(op_, items_); walk.Find(&panel); walk.Advance()) {
#pragma unroll 1
      for (int k = 0; k < cols_; k += kTileStep) {
        barriers_.weights.empty[stage.index].Await(stage.parity ^ 1);
        const uint32_t to =
            stages_ + static_cast<uint32_t>(stage.index * T::kWeightBytes);
        Barrier& full = barriers_.weights.full[stage.index];
        if (!maps_.has_weights) {
          CopyWeights(panel, k, to, full);
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

  /// The block's share of the rows of x of all items of a dense product, by one
  /// warp.
  __device__ void BringInputs() const {
    if (lane_ != 0) return;
    BulkCopies::SeeEarlierWrites();
    const int box_rows = maps_.input_rows;
    const int box_bytes = box_rows * T::kRowBytes;
    StageAt<T::kInputStages> stage;
    Panel panel;
    for (ItemWalk<T> walk(op_, items_); walk.Find(&panel); walk.Advance()) {
      const auto first = static_cast<int>(InputRow(op_, panel, 0));
      const int boxes = TilesOf(panel.rows, box_rows);
#pragma unroll 1
      for (int k = 0; k < cols_; k += kTileStep) {
        barriers_.inputs.empty[stage.index].Await(stage.parity ^ 1);
        const uint32_t to = stages_ + T::kInputsAt +
                            static_cast<uint32_t>(stage.index * T::kInputBytes);
        Barrier& full = barriers_.inputs.full[stage.index];
        // What the other blocks bring may have come before.
        full.Expect(static_cast<uint32_t>(boxes * box_bytes));
        for (int box = walk.rank(); box < boxes; box += T::kCluster) {
          StartSharedBoxCopy<T::kCluster>(
              to + static_cast<uint32_t>(box * box_bytes), maps_.inputs, k,
              first + box * box_rows, 0, full);
        }
        stage.Advance();
      }
    }
  }

  /// The rows of x of a grouped product, by kInputWarps warps: each stage has
  /// kGatherers of its own. So a warp may wait for its own copies, as the
  /// fence after them does anyhow. What has to be looked up of an item is asked
  /// for one item ahead.
  __device__ void GatherInputs(int warp, GatheredItems<T>& gathered) const {
    GatheredRows<T>* rows = gathered.of_warp[warp];
    const int at = warp / T::kGatherers;
    const uint32_t stage =
        stages_ + T::kInputsAt + static_cast<uint32_t>(at * T::kInputBytes);
    const int steps = TilesOf(cols_, kTileStep);
    int turn = 0;  // of the stage whose step is next
    int parity = 1;
    int buffer = 0;
    ItemWalk<T> walk(op_, items_);
    const int first = warp % T::kGatherers;
    int next = AskForSlots(walk, first, rows[buffer]);
    while (next > 0) {
      WaitCopyGroups<0>();
      const int count = next;
      GatheredRows<T>& own = rows[buffer];
      // Slots become rows of x, a lane those it has asked for.
      const int own_groups = OwnGroups(count, first);
      for (int group = 0; group < own_groups; ++group) {
        own.At(group, lane_) /= op_.slots_per_input;
      }
      __syncwarp();
      walk.Advance();
      buffer ^= 1;
      next = AskForSlots(walk, first, rows[buffer]);
#pragma unroll 1
      for (int step = 0; step < steps; ++step) {
        if (turn == at) {
          barriers_.inputs.empty[at].Await(parity);
          parity ^= 1;
          for (int group = 0; group < own_groups; ++group) {
            GatherGroup(own.groups[group][lane_ / 8],
                        first + group * T::kGatherers, count, step * kTileStep,
                        stage);
          }
          ShowTo(barriers_.inputs.full[at]);
        }
        turn = turn + 1 == T::kInputStages ? 0 : turn + 1;
      }
    }
  }

 private:
  /// Of `count` rows, the groups of the gatherer whose first is group `first`.
  static __device__ __forceinline__ int OwnGroups(int count, int first) {
    return max(TilesOf(TilesOf(count, kGatherRows) - first, T::kGatherers), 0);
  }
  /// How many rows an item has, and asks for the slots of this warp's groups;
  /// 0: no item.
  __device__ __forceinline__ int AskForSlots(const ItemWalk<T>& walk, int first,
                                             GatheredRows<T>& rows) const {
    Panel panel;
    if (!walk.Find(&panel)) return 0;
    __syncwarp();  // all lanes are done with what `rows` held
    const int own_groups = OwnGroups(panel.rows, first);
    for (int group = 0; group < own_groups; ++group) {
      const int row = (first + group * T::kGatherers) * kGatherRows + lane_;
      if (row < panel.rows) {
        StartCopy4(SharedAddress(&rows.At(group, lane_)),
                   op_.sorted_slot + panel.first_row + row);
      }
    }
    EndCopyGroup();
    return panel.rows;
  }
  /// This lane's pieces of group `group` of an item of `count` rows, to a
  /// stage: of the rows of x that `rows` names.
  __device__ __forceinline__ void GatherGroup(const int4 (&rows)[2], int group,
                                              int count, int k,
                                              uint32_t stage) const {
    constexpr int kApart = kWarpSize / 8;  // eight lanes copy a row
    const int first = lane_ / 8;
    const int piece = lane_ % 8;
    const bool inside = k + 8 * piece < cols_;
    const char* x =
        static_cast<const char*>(op_.x) + int64_t{2} * (k + 8 * piece);
    const int left = count - group * kGatherRows - first;
    const uint32_t to = stage + static_cast<uint32_t>(group * T::kGroupBytes +
                                                      first * T::kRowBytes);
    // Of an eighth row on, pieces are permuted alike.
    const uint32_t even = to + static_cast<uint32_t>((piece ^ first) << 4);
    const uint32_t odd =
        to + static_cast<uint32_t>((piece ^ (first + kApart)) << 4);
    const int4 list[2] = {rows[0], rows[1]};
    const int from[8] = {list[0].x, list[0].y, list[0].z, list[0].w,
                         list[1].x, list[1].y, list[1].z, list[1].w};
#pragma unroll
    for (int i = 0; i < kGatherRows / kApart; ++i) {
      if (i * kApart < left) {
        StartCopy16((i % 2 == 0 ? even : odd) +
                        static_cast<uint32_t>(i * kApart * T::kRowBytes),
                    x + int64_t{2} * from[i] * cols_, inside);
      }
    }
  }
  /// A tile of an expert's weights that no map shows, eight lanes a row.
  __device__ __forceinline__ void CopyWeights(const Panel& panel, int k,
                                              uint32_t stage,
                                              Barrier& full) const {
    constexpr int kApart = kWarpSize / 8;
    const int piece = lane_ % 8;
    const int count = min(panel.columns, T::kColumns);
    const bool inside = k + 8 * piece < cols_;
    const void* matrix = MatrixOfExpert(op_, panel.expert, panel.index);
    const char* from = static_cast<const char*>(matrix) +
                       2 * (panel.first_column * cols_ + k + 8 * piece);
    for (int row = lane_ / 8; row < count; row += kApart) {
      StartCopy16(stage + static_cast<uint32_t>(row * T::kRowBytes +
                                                ((piece ^ row % 8) << 4)),
                  from + int64_t{2} * row * cols_, inside);
    }
    ShowTo(full);
  }
  /// Waits for the copies of this warp.
  __device__ __forceinline__ void AwaitCopies() const {
    EndCopyGroup();
    WaitCopyGroups<0>();
    ShowCopies();
    __syncwarp();
  }
  __device__ __forceinline__ void ShowTo(Barrier& full) const {
    AwaitCopies();
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
