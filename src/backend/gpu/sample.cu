// Draws the token of a row: what is done by many blocks a row, and the launches
// (sample.cuh).

#include <algorithm>

#include "backend/gpu/delta_config.h"
#include "backend/gpu/gpu_kernels.h"
#include "backend/gpu/sample.cuh"

namespace signet::backend::gpu {
namespace {

// The first of four ids that a thread reads together.
__device__ inline int32_t FirstId(int quad) {
  return static_cast<int32_t>(blockIdx.x) * kPartIds +
         4 * (static_cast<int32_t>(threadIdx.x) + quad * kPartThreads);
}

struct Quads {
  float logit[kThreadQuads][4];

  __device__ void Load(const float* logits, int32_t count, bool vectors) {
#pragma unroll
    for (int i = 0; i < kThreadQuads; ++i) {
      const float4 x = LoadLogits(logits, FirstId(i), count, vectors);
      logit[i][0] = x.x;
      logit[i][1] = x.y;
      logit[i][2] = x.z;
      logit[i][3] = x.w;
    }
  }
  // Calls body(id, logit) for the ids below `count`, ascending.
  template <typename Body>
  __device__ void ForIds(int32_t count, const Body& body) const {
#pragma unroll
    for (int i = 0; i < kThreadQuads; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (FirstId(i) + j < count) body(FirstId(i) + j, logit[i][j]);
      }
    }
  }
};

__device__ inline Best BetterOf(const Best& a, const Best& b) {
  const bool second = b.logit > a.logit || (b.logit == a.logit && b.id < a.id);
  return second ? b : a;
}

__device__ inline Best BestOfWarp(Best best) {
#pragma unroll
  for (int distance = kWarpSize / 2; distance > 0; distance /= 2) {
    best = BetterOf(best, {__shfl_xor_sync(~0u, best.logit, distance),
                           __shfl_xor_sync(~0u, best.id, distance)});
  }
  return best;
}

// Grid of this and the next: part, row.
__global__ void __launch_bounds__(kPartThreads)
    FindBest(const SampleArgs args, const SampleParts parts,
             const bool vectors) {
  DependencyWait();
  const int64_t row = parts.first_row + blockIdx.y;
  if (row >= *args.rows.live) return;
  // Up to the vocabulary, so as not to wait for the bound.
  Quads quads;
  quads.Load(args.logits + row * args.vocab, static_cast<int32_t>(args.vocab),
             vectors);
  SampleRow found;
  FindSampleRow(args, row, found);
  Best best = {-kInfinity, kNoId};
  bool fault = false;
  quads.ForIds(found.count, [&](int32_t id, float logit) {
    fault = fault || !(fabsf(logit) < kInfinity);
    if (logit > best.logit) best = {logit, id};
  });
  best = BestOfWarp(best);
  if (__any_sync(~0u, fault)) best = {0, -1};
  if (threadIdx.x % kWarpSize == 0) {
    const int64_t part = int64_t{blockIdx.y} * parts.parts + blockIdx.x;
    parts.best[part * kPartWarps + threadIdx.x / kWarpSize] = best;
  }
}

// Keys of the groups a thread of the next kernel holds; groups beyond share
// places, of which the greatest counts.
constexpr int kThreadKeys = 4;

// What is found of a row's groups.
struct Groups {
  Best best;
  bool fault;
  uint32_t keys[kThreadKeys];  // 0 where there is no group
};

__device__ inline void FindGroups(const SampleParts& parts, Groups& groups) {
  const int32_t count = parts.parts * kPartWarps;
  const Best* of_row = parts.best + int64_t{blockIdx.y} * count;
  groups.best = {-kInfinity, kNoId};
  groups.fault = false;
#pragma unroll
  for (int i = 0; i < kThreadKeys; ++i) groups.keys[i] = 0;
  for (int32_t base = threadIdx.x; base < count;
       base += kThreadKeys * kPartThreads) {
#pragma unroll
    for (int i = 0; i < kThreadKeys; ++i) {
      const int32_t group = base + i * kPartThreads;
      if (group >= count) continue;
      const Best best = of_row[group];
      groups.fault = groups.fault || best.id < 0;
      groups.best = BetterOf(groups.best, best);
      if (best.id == kNoId) continue;
      groups.keys[i] = max(groups.keys[i], KeyOf(best.logit));
    }
  }
  __shared__ Best of_warp[kPartWarps];
  groups.best = BestOfWarp(groups.best);
  if (threadIdx.x % kWarpSize == 0) {
    of_warp[threadIdx.x / kWarpSize] = groups.best;
  }
  groups.fault = __syncthreads_or(groups.fault) != 0;
#pragma unroll
  for (int w = 0; w < kPartWarps; ++w) {
    groups.best = BetterOf(groups.best, of_warp[w]);
  }
}

// How many groups reach `bar`, to all threads. `counts` is not in use by a
// call before the last.
__device__ inline int32_t GroupsFrom(const Groups& groups, uint32_t bar,
                                     int32_t* counts) {
  int32_t count = 0;
#pragma unroll
  for (int i = 0; i < kThreadKeys; ++i) count += groups.keys[i] >= bar ? 1 : 0;
  count = __reduce_add_sync(~0u, count);
  if (threadIdx.x % kWarpSize == 0) counts[threadIdx.x / kWarpSize] = count;
  __syncthreads();
  int32_t sum = 0;
#pragma unroll
  for (int w = 0; w < kPartWarps; ++w) sum += counts[w];
  return sum;
}

// A key that the greatest of at least as many groups reach as ids are wanted,
// so that as many ids reach it too; 0 if there are not so many groups.
__device__ inline uint32_t FindBar(const SampleRow& row, int32_t all_groups,
                                   const Groups& groups) {
  __shared__ int32_t counts[2][kPartWarps];
  const int32_t groups_here = GroupsFrom(groups, 1, counts[0]);
  // Without a limit, enough for most draws and few enough to put in order.
  const int32_t wanted =
      row.limited ? row.params.top_k : min(max(all_groups / 4, 1), groups_here);
  if (wanted > groups_here) return 0;
  uint32_t bar = 0;
  // The low bits of logits are left out of it.
  constexpr int kLastBit = 12;
  for (int bit = 31; bit >= kLastBit; --bit) {
    const uint32_t higher = bar | 1u << bit;
    if (GroupsFrom(groups, higher, counts[bit % 2]) >= wanted) bar = higher;
  }
  return bar;
}

__global__ void __launch_bounds__(kPartThreads)
    GatherLikely(const SampleArgs args, const SampleParts parts,
                 const bool vectors) {
  __shared__ int32_t gathered;
  __shared__ double warp_sums[kPartWarps];

  DependencyWait();
  const int64_t index = blockIdx.y;
  SampleRow row;
  if (!FindSampleRow(args, parts.first_row + index, row)) return;
  const bool leads = blockIdx.x == 0 && threadIdx.x == 0;
  if (row.greedy && blockIdx.x != 0) return;
  Quads quads;
  if (!row.greedy) quads.Load(row.logits, row.count, vectors);
  if (threadIdx.x == 0) gathered = 0;
  Groups groups;
  FindGroups(parts, groups);
  const bool draws = !row.greedy && !groups.fault && groups.best.id != kNoId;
  if (leads) {
    parts.facts[index] = {groups.best.logit, draws ? 1 : 0};
    if (groups.fault) atomicOr(args.flag, kFlagNonFinite);
    if (!draws) {
      args.ids[row.row] =
          groups.fault || groups.best.id == kNoId ? -1 : groups.best.id;
    }
  }
  if (!draws) return;

  const uint32_t bar = FindBar(row, parts.parts * kPartWarps, groups);
  int32_t* ids = args.scratch + row.row * args.vocab +
                 static_cast<int32_t>(blockIdx.x) * kPartIds;
  double sum = 0;
  quads.ForIds(row.count, [&](int32_t id, float logit) {
    if (KeyOf(logit) >= bar) ids[atomicAdd(&gathered, 1)] = id;
    if (row.limited) return;
    sum = __dadd_rn(sum, static_cast<double>(WeightOf(logit, groups.best.logit,
                                                      row.params.temperature)));
  });
  sum = BlockSum<kPartWarps>(sum, warp_sums);
  if (threadIdx.x != 0) return;
  const int64_t part = index * parts.parts + blockIdx.x;
  parts.sums[part] = sum;
  parts.counts[part] = gathered;
}

constexpr int64_t RoundUp(int64_t bytes) { return (bytes + 255) / 256 * 256; }

// Lays out the parts of `rows` rows; returns the bytes they take.
int64_t LayOut(int64_t rows, int64_t num_parts, void* memory,
               SampleParts& parts) {
  int64_t used = 0;
  const auto take = [&](int64_t bytes) {
    void* at = static_cast<char*>(memory) + used;
    used += RoundUp(bytes);
    return at;
  };
  const int64_t all = rows * num_parts;
  parts.parts = static_cast<int32_t>(num_parts);
  parts.sums =
      static_cast<double*>(take(all * static_cast<int64_t>(sizeof(double))));
  parts.best = static_cast<Best*>(
      take(all * kPartWarps * static_cast<int64_t>(sizeof(Best))));
  parts.counts =
      static_cast<int32_t*>(take(all * static_cast<int64_t>(sizeof(int32_t))));
  parts.facts = static_cast<RowFacts*>(
      take(rows * static_cast<int64_t>(sizeof(RowFacts))));
  return used;
}

}  // namespace

void GpuKernels::Sample(LaunchKey, const SampleArgs& args) {
  const int64_t rows = args.which == LogitRows::kLast ? 1 : args.rows.capacity;
  const int64_t num_parts = (args.vocab + kPartIds - 1) / kPartIds;
  const bool vectors = args.vocab % 4 == 0 && Aligned16({args.logits});
  SampleParts parts;
  // As many rows at a time as the memory between the kernels holds.
  int64_t most = std::min<int64_t>(rows, 65535);
  while (LayOut(most, num_parts, scratch_, parts) >
         static_cast<int64_t>(kSplitBytes)) {
    most = (most + 1) / 2;
  }
  for (int64_t first = 0; first < rows; first += most) {
    const int64_t count = std::min(most, rows - first);
    parts.first_row = first;
    const dim3 grid(static_cast<unsigned>(num_parts),
                    static_cast<unsigned>(count));
    Check(LaunchRows(rows, FindBest, grid, kPartThreads, 0, stream_, args,
                     parts, vectors));
    Check(LaunchRows(rows, GatherLikely, grid, kPartThreads, 0, stream_, args,
                     parts, vectors));
    Check(LaunchDraw(stream_, args, parts, count, vectors));
  }
}

}  // namespace signet::backend::gpu
