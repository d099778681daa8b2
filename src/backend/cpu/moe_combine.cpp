// The canonical fold of expert rows (contract N2).

#include <algorithm>
#include <cstdint>

#include "backend/cpu/expert_slot.h"
#include "backend/cpu/ops.h"
#include "backend/cpu/simd_targets.h"
#include "base/check.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/moe_combine.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file once a target.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace signet::backend::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

constexpr int64_t kMaxFoldLanes = 8;
// Columns folded at a time: the lanes stay in L1.
constexpr int64_t kFoldColumns = 256;

/// sum[i] <- w * d[i] + sum[i], rounded once.
void AddWeighted(float w, const float* d, int64_t count, float* sum) {
  const hn::CappedTag<float, 16> tag;
  const int64_t step = static_cast<int64_t>(hn::Lanes(tag));
  const auto weight = hn::Set(tag, w);
  int64_t i = 0;
  for (; i + step <= count; i += step) {
    hn::StoreU(
        hn::MulAdd(weight, hn::LoadU(tag, d + i), hn::LoadU(tag, sum + i)), tag,
        sum + i);
  }
  const hn::CappedTag<float, 1> one;
  for (; i < count; ++i) {
    hn::StoreU(hn::MulAdd(hn::Set(one, w), hn::LoadU(one, d + i),
                          hn::LoadU(one, sum + i)),
               one, sum + i);
  }
}

}  // namespace

/// Columns [begin, begin + count) of one token.
void CombineColumns(const CombineArgs& args, int64_t token, int64_t begin,
                    int64_t count) {
  float lanes[kMaxFoldLanes][kFoldColumns];
  for (int64_t lane = 0; lane < args.num_lanes; ++lane) {
    std::fill_n(lanes[lane], count, 0.0f);
  }
  for (int64_t k = 0; k < args.top_k; ++k) {
    const int64_t slot = token * args.top_k + k;
    const int32_t id = args.ids[slot];
    if (LocalExpertOf(id, args.global_to_local, args.num_experts) < 0) continue;
    const int64_t row =
        args.inverse_perm == nullptr ? slot : args.inverse_perm[slot];
    if (row < 0) continue;
    const int64_t lane = id * args.lanes / args.num_experts - args.first_lane;
    SIGNET_CHECK(lane >= 0 && lane < args.num_lanes);
    AddWeighted(args.weights[slot], args.d + row * args.width + begin, count,
                lanes[lane]);
  }
  for (int64_t stride = 1; stride < args.num_lanes; stride *= 2) {
    for (int64_t lane = 0; lane < args.num_lanes; lane += 2 * stride) {
      float* sum = lanes[lane];
      const float* other = lanes[lane + stride];
      for (int64_t i = 0; i < count; ++i) sum[i] += other[i];
    }
  }
  std::copy_n(lanes[0], count, args.out + token * args.width + begin);
}

}  // namespace HWY_NAMESPACE
}  // namespace signet::backend::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace signet::backend::cpu {

HWY_EXPORT(CombineColumns);

void Combine(ThreadPool& pool, const CombineArgs& args) {
  constexpr int64_t kMaxLanes = HWY_STATIC_DISPATCH(kMaxFoldLanes);
  constexpr int64_t kColumns = HWY_STATIC_DISPATCH(kFoldColumns);
  SIGNET_CHECK(args.num_lanes >= 1 && args.num_lanes <= kMaxLanes &&
               (args.num_lanes & (args.num_lanes - 1)) == 0);
  const int64_t num_blocks = (args.width + kColumns - 1) / kColumns;
  pool.ParallelFor(*args.rows.live * num_blocks, [&](int64_t task, int) {
    const int64_t begin = task % num_blocks * kColumns;
    HWY_DYNAMIC_DISPATCH(CombineColumns)
    (args, task / num_blocks, begin, std::min(kColumns, args.width - begin));
  });
}

}  // namespace signet::backend::cpu
#endif
