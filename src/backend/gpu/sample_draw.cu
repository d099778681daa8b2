// Draws the token of a row from the ids that GatherLikely collected, put in
// order; or, if they do not decide it, from all (sample_search.cuh).

#include "backend/gpu/philox.cuh"
#include "backend/gpu/sample.cuh"
#include "backend/gpu/sample_search.cuh"

namespace signet::backend::gpu {
namespace {

constexpr int kThreads = kSearchThreads;
constexpr int kWarps = kSearchWarps;
constexpr int kListIds = 4096;
constexpr int32_t kUndecided = -1;

// The collected ids: key inverted in the high half, so that ascending order is
// that of the draw.
struct List {
  uint64_t entry[kListIds];
  alignas(16) float weight[kListIds];

  __device__ int32_t Id(int rank) const {
    return static_cast<int32_t>(entry[rank]);
  }
  __device__ uint32_t Key(int rank) const {
    return ~static_cast<uint32_t>(entry[rank] >> 32);
  }
};

union DrawMemory {
  List list;
  SearchMemory search;
};

// Copies the ids of all parts, in any order; returns how many there are, which
// may be more than fit.
__device__ inline int32_t GatherIds(const SampleArgs& args,
                                    const SampleParts& parts,
                                    const SampleRow& row, List& list,
                                    int32_t& held) {
  const int warp = threadIdx.x / kWarpSize;
  const int lane = threadIdx.x % kWarpSize;
  const int32_t* counts = parts.counts + int64_t{blockIdx.x} * parts.parts;
  const int32_t* ids = args.scratch + row.row * args.vocab;
  if (threadIdx.x == 0) held = 0;
  __syncthreads();
  // A warp takes 32 parts at a time, whose counts its lanes hold.
  for (int32_t base = warp * kWarpSize; base < parts.parts; base += kThreads) {
    const int32_t part = base + lane;
    const int32_t count = part < parts.parts ? counts[part] : 0;
    const int32_t at = count > 0 ? atomicAdd(&held, count) : 0;
    for (int i = 0; i < kWarpSize; ++i) {
      const int32_t n = __shfl_sync(~0u, count, i);
      const int32_t to = __shfl_sync(~0u, at, i);
      const int32_t* from = ids + int64_t{base + i} * kPartIds;
      for (int32_t j = lane; j < n && to + j < kListIds; j += kWarpSize) {
        list.entry[to + j] = static_cast<uint32_t>(from[j]);
      }
    }
  }
  __syncthreads();
  return held;
}

// Adds keys to the ids and puts the list in order; `count` > 0.
__device__ inline void SortList(const SampleRow& row, int32_t count,
                                List& list) {
  int32_t size = 2;
  while (size < count) size *= 2;
  for (int32_t i = threadIdx.x; i < size; i += kThreads) {
    const uint64_t id = list.entry[i];
    list.entry[i] =
        i < count ? uint64_t{~KeyOf(row.logits[id])} << 32 | id : ~uint64_t{0};
  }
  __syncthreads();
  // Bitonic: of each pair at `distance`, the lesser comes first in runs that
  // ascend.
  for (int32_t run = 2; run <= size; run *= 2) {
    for (int32_t distance = run / 2; distance > 0; distance /= 2) {
      for (int32_t i = threadIdx.x; i < size / 2; i += kThreads) {
        const int32_t low = 2 * i - (i & (distance - 1));
        const int32_t high = low + distance;
        const bool ascends = (low & run) == 0;
        const uint64_t a = list.entry[low];
        const uint64_t b = list.entry[high];
        if ((a > b) == ascends) {
          list.entry[low] = b;
          list.entry[high] = a;
        }
      }
      __syncthreads();
    }
  }
}

// Adds weights in rank order to `sum` until it meets the target; returns the
// rank that does, or `count`. Then `sum` is that of all `count`, if the weights
// from there to the next multiple of four are 0.
__device__ inline int32_t RankOf(const List& list, int32_t count,
                                 const Target& target, double& sum) {
  for (int32_t rank = 0; rank < count; rank += 4) {
    const float4 w = *reinterpret_cast<const float4*>(list.weight + rank);
    const double weights[4] = {w.x, w.y, w.z, w.w};
    double after[4];
    double running = sum;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      running = __dadd_rn(running, weights[i]);
      after[i] = running;
    }
    if (!target.IsMetBy(running)) {
      sum = running;
      continue;
    }
    int met = 3;
#pragma unroll
    for (int i = 2; i >= 0; --i) {
      if (target.IsMetBy(after[i])) met = i;
    }
    if (rank + met >= count) {
      sum = after[count - 1 - rank];
      return count;
    }
    sum = after[met];
    return rank + met;
  }
  return count;
}

// The rank drawn among the first `listed` of `count` candidates, by one thread;
// kUndecided if those listed do not tell. `sum`: the weight of all candidates.
__device__ inline int32_t DrawRank(const SampleRow& row, const List& list,
                                   int32_t listed, int32_t count, double sum,
                                   double u) {
  int32_t last = count - 1;
  double kept = sum;
  if (row.params.top_p < 1.0f) {
    const Target target = {
        __dmul_rn(static_cast<double>(row.params.top_p), kept), false};
    kept = 0;
    const int32_t rank = RankOf(list, listed, target, kept);
    if (rank < listed) {
      last = rank;
    } else if (listed < count) {
      return kUndecided;
    }
  }
  const int32_t before_last = min(listed, last);
  double running = 0;
  const int32_t rank =
      RankOf(list, before_last, {__dmul_rn(u, kept), true}, running);
  if (rank < before_last) return rank;
  return last < listed ? last : kUndecided;
}

// Grid: row.
__global__ void __launch_bounds__(kThreads)
    DrawRow(const SampleArgs args, const SampleParts parts,
            const bool vectors) {
  extern __shared__ uint4 dynamic_memory[];
  __shared__ SearchShared shared;
  __shared__ int32_t held;
  __shared__ int32_t drawn;

  DependencyWait();
  SampleRow row;
  if (!FindSampleRow(args, parts.first_row + blockIdx.x, row)) return;
  const RowFacts facts = parts.facts[blockIdx.x];
  if (facts.draws == 0) return;
  auto& memory = *reinterpret_cast<DrawMemory*>(dynamic_memory);
  const SamplingRow& params = row.params;
  const double u = UnitFloat(PhiloxWord(params.sequence, params.position,
                                        params.seed_low, params.seed_high));

  double sum = 0;
  if (!row.limited) {
    const double* sums = parts.sums + int64_t{blockIdx.x} * parts.parts;
    for (int32_t i = threadIdx.x; i < parts.parts; i += kThreads) {
      sum = __dadd_rn(sum, sums[i]);
    }
    sum = BlockSum<kWarps>(sum, shared.sums);
  }

  List& list = memory.list;
  const int32_t gathered = GatherIds(args, parts, row, list, held);
  if (gathered <= kListIds) {
    SortList(row, gathered, list);
    const int32_t listed = row.limited ? params.top_k : gathered;
    for (int32_t rank = threadIdx.x; rank < (listed + 3) / 4 * 4;
         rank += kThreads) {
      list.weight[rank] = rank < listed
                              ? WeightOf(LogitOf(list.Key(rank)),
                                         facts.greatest, params.temperature)
                              : 0.0f;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      if (row.limited) {
        RankOf(list, listed, {static_cast<double>(kInfinity), true}, sum);
      }
      const int32_t rank =
          DrawRank(row, list, listed, row.limited ? listed : row.count, sum, u);
      drawn = rank == kUndecided ? kUndecided : list.Id(rank);
    }
    __syncthreads();
    if (drawn != kUndecided) {
      if (threadIdx.x == 0) args.ids[row.row] = drawn;
      return;
    }
  }
  RowSearch search(row, facts.greatest, vectors, memory.search, shared);
  const int32_t id = search.Draw(sum, u);
  if (threadIdx.x == 0) args.ids[row.row] = id;
}

}  // namespace

Status LaunchDraw(Stream stream, const SampleArgs& args,
                  const SampleParts& parts, int64_t rows, bool vectors) {
  constexpr int kBytes = sizeof(DrawMemory);
  const Status status = cudaFuncSetAttribute(
      DrawRow, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (status != kOk) return status;
  return LaunchRows(rows, DrawRow, dim3(static_cast<unsigned>(rows)), kThreads,
                    kBytes, stream, args, parts, vectors);
}

}  // namespace signet::backend::gpu
