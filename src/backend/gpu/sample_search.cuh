#pragma once
// Finds the draw of a row among all its logits by one block, when the likely
// ids do not decide it: digit by digit of the logit as an integer, each with
// one pass over the logits. Any limits, any ties; slow. Device code only.

#include <cstdint>

#include "backend/gpu/sample.cuh"

namespace signet::backend::gpu {

inline constexpr int kSearchThreads = 512;
inline constexpr int kSearchWarps = kSearchThreads / kWarpSize;
inline constexpr int kDigitBits = 4;
inline constexpr int kDigits = 1 << kDigitBits;
inline constexpr int kPasses = 32 / kDigitBits;
static_assert(kDigits == kSearchWarps, "a warp sums a digit");

/// Shared memory of a search.
struct SearchMemory {
  double bins[kDigits][kSearchThreads];  // a thread's own sums by digit
};
struct SearchShared {
  double sums[kDigits];
  uint32_t seen[kPasses];  // digits that occur
  int32_t ties[kSearchWarps];
  int32_t id;
};

/// A place in the order of a row: the `ties`th id of logit `key`, counted from
/// 1. `above` is the weight of all ids of greater logits.
struct Place {
  uint32_t key;
  int32_t ties;
  double above;

  __device__ bool IsBehind(const Place& other) const {
    return key < other.key || (key == other.key && ties > other.ties);
  }
};

/// What a running sum has to reach, or to exceed.
struct Target {
  double sum;
  bool exceed;

  __device__ bool IsMetBy(double x) const {
    return exceed ? x > sum : x >= sum;
  }
};

/// All threads of the block call every member, with the same arguments.
class RowSearch {
 public:
  __device__ RowSearch(const SampleRow& row, float greatest, bool vectors,
                       SearchMemory& memory, SearchShared& shared)
      : row_(row),
        greatest_(greatest),
        vectors_(vectors),
        memory_(memory),
        shared_(shared) {}

  /// The id drawn at `u` in [0, 1). `sum`: the weight of all ids, if top_k does
  /// not limit them.
  __device__ int32_t Draw(double sum, double u) {
    Place last = {0, kNoId, 0};
    double kept = sum;
    if (row_.limited) {
      const double top_k = row_.params.top_k;
      last = Find<true>({top_k, false});
      kept = WeightTo(last);
    }
    if (row_.params.top_p < 1.0f) {
      const Place nucleus = Find<false>(
          {__dmul_rn(static_cast<double>(row_.params.top_p), kept), false});
      if (!nucleus.IsBehind(last)) {
        last = nucleus;
        kept = __dadd_rn(nucleus.above,
                         __dmul_rn(nucleus.ties, Weight<false>(nucleus.key)));
      }
    }
    Place drawn = Find<false>({__dmul_rn(u, kept), true});
    if (drawn.IsBehind(last)) drawn = last;
    return IdAt(drawn);
  }

 private:
  template <bool kCount>  // ids count alike, else by probability
  __device__ double Weight(uint32_t key) const {
    if constexpr (kCount) return 1;
    return WeightOf(LogitOf(key), greatest_, row_.params.temperature);
  }

  template <typename Body>
  __device__ void ForKeys(const Body& body) const {
#pragma unroll 4
    for (int32_t first = 4 * static_cast<int32_t>(threadIdx.x);
         first < row_.count; first += 4 * kSearchThreads) {
      const float4 x = LoadLogits(row_.logits, first, row_.count, vectors_);
      const float logits[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (first + i < row_.count) body(KeyOf(logits[i]));
      }
    }
  }

  // The first place up to which the weights meet `target`; the last place if
  // rounding lets none.
  template <bool kCount>
  __device__ Place Find(const Target& target) {
    const int thread = threadIdx.x;
    // Also: all have done with what an earlier call left.
    __syncthreads();
    if (thread < kPasses) shared_.seen[thread] = 0;
    uint64_t prefix = 0;
    double above = 0;
    for (int pass = 0; pass < kPasses; ++pass) {
      const int shift = 32 - kDigitBits * (pass + 1);
      for (int d = 0; d < kDigits; ++d) memory_.bins[d][thread] = 0;
      __syncthreads();
      uint32_t seen = 0;
      ForKeys([&](uint32_t key) {
        if (uint64_t{key} >> (shift + kDigitBits) != prefix) return;
        const uint32_t digit = key >> shift & (kDigits - 1);
        double& bin = memory_.bins[digit][thread];
        bin = __dadd_rn(bin, Weight<kCount>(key));
        seen |= 1u << digit;
      });
      if (seen != 0) atomicOr(&shared_.seen[pass], seen);
      __syncthreads();
      SumBins();
      __syncthreads();
      prefix =
          prefix << kDigitBits | ChooseDigit(shared_.seen[pass], target, above);
    }
    const auto key = static_cast<uint32_t>(prefix);
    return {key, TiesTo(target, above, Weight<kCount>(key)), above};
  }

  // Warp w sums digit w over the threads.
  __device__ void SumBins() {
    const int warp = threadIdx.x / kWarpSize;
    const int lane = threadIdx.x % kWarpSize;
    double sum = 0;
    for (int i = lane; i < kSearchThreads; i += kWarpSize) {
      sum = __dadd_rn(sum, memory_.bins[warp][i]);
    }
#pragma unroll
    for (int distance = kWarpSize / 2; distance > 0; distance /= 2) {
      sum = __dadd_rn(sum, __shfl_xor_sync(~0u, sum, distance));
    }
    if (lane == 0) shared_.sums[warp] = sum;
  }

  // The digit in which the sum from `above` on meets the target, else the last
  // one that occurs; `above` gains the digits before it.
  __device__ uint32_t ChooseDigit(uint32_t seen, const Target& target,
                                  double& above) const {
    uint32_t chosen = 0;
    double before = above;
    double sum = above;
    for (int d = kDigits - 1; d >= 0; --d) {
      if ((seen >> d & 1) == 0) continue;
      chosen = static_cast<uint32_t>(d);
      before = sum;
      sum = __dadd_rn(sum, shared_.sums[d]);
      if (target.IsMetBy(sum)) break;
    }
    above = before;
    return chosen;
  }

  // The fewest ids of weight `each` that meet the target after `above`.
  __device__ int32_t TiesTo(const Target& target, double above,
                            double each) const {
    if (!(each > 0)) return 1;
    const auto met = [&](int32_t ties) {
      return target.IsMetBy(__dadd_rn(above, __dmul_rn(ties, each)));
    };
    const double guess = (target.sum - above) / each;
    int32_t ties = guess < 1            ? 1
                   : guess < row_.count ? static_cast<int32_t>(guess)
                                        : row_.count;
    while (ties > 1 && met(ties - 1)) --ties;
    while (ties < row_.count && !met(ties)) ++ties;
    return ties;
  }

  // The weight of the ids up to a place.
  __device__ double WeightTo(const Place& place) {
    double sum = 0;
    ForKeys([&](uint32_t key) {
      if (key > place.key) sum = __dadd_rn(sum, Weight<false>(key));
    });
    return __dadd_rn(BlockSum<kSearchWarps>(sum, shared_.sums),
                     __dmul_rn(place.ties, Weight<false>(place.key)));
  }

  // The id at a place; the last of its logit if there are fewer.
  __device__ int32_t IdAt(const Place& place) {
    const int warp = threadIdx.x / kWarpSize;
    const int lane = threadIdx.x % kWarpSize;
    const int32_t each = (row_.count + kSearchWarps - 1) / kSearchWarps;
    const int32_t first = warp * each;
    const int32_t end = min(first + each, row_.count);
    const auto ties_at = [&](int32_t id) {
      const bool tie =
          id + lane < end && KeyOf(row_.logits[id + lane]) == place.key;
      return __ballot_sync(~0u, tie);
    };
    int32_t ties = 0;
    for (int32_t id = first; id < end; id += kWarpSize) {
      ties += __popc(ties_at(id));
    }
    __syncthreads();
    if (lane == 0) shared_.ties[warp] = ties;
    __syncthreads();
    int32_t all = 0;
    int32_t before = 0;
    for (int w = 0; w < kSearchWarps; ++w) {
      if (w == warp) before = all;
      all += shared_.ties[w];
    }
    // The one warp that has it goes to it.
    int32_t left = min(place.ties, all) - before;
    if (left >= 1 && left <= ties) {
      for (int32_t id = first; id < end && left > 0; id += kWarpSize) {
        uint32_t mask = ties_at(id);
        for (; mask != 0 && left > 0; mask &= mask - 1) {
          if (--left == 0 && lane == 0) shared_.id = id + __ffs(mask) - 1;
        }
      }
    }
    __syncthreads();
    return shared_.id;
  }

  const SampleRow& row_;
  const float greatest_;
  const bool vectors_;
  SearchMemory& memory_;
  SearchShared& shared_;
};

}  // namespace signet::backend::gpu
