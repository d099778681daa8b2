#include <algorithm>
#include <cstdint>

#include "backend/cpu/ops.h"
#include "backend/cpu/product.h"
#include "backend/cpu/simd_targets.h"
#include "base/check.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/embed.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file once a target.
#include "backend/cpu/lanes16-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace signet::backend::cpu {
namespace HWY_NAMESPACE {
namespace {

template <typename T>
void Convert(const T* from, int64_t count, float* to) {
  int64_t i = 0;
  for (; i + kDotLanes <= count; i += kDotLanes) {
    StoreLanes(LoadLanes(from + i), to + i);
  }
  if (i == count) return;
  HWY_ALIGN float tail[kDotLanes];
  StoreLanes(LoadTail(from + i, static_cast<size_t>(count - i)), tail);
  std::copy(tail, tail + (count - i), to + i);
}

}  // namespace

void ConvertRow(const void* from, tensor::DType dtype, int64_t count,
                float* to) {
  switch (dtype) {
    case tensor::DType::kF32:
      return Convert(static_cast<const float*>(from), count, to);
    case tensor::DType::kBF16:
      return Convert(static_cast<const hwy::bfloat16_t*>(from), count, to);
    case tensor::DType::kF16:
      return Convert(static_cast<const hwy::float16_t*>(from), count, to);
    case tensor::DType::kI32:
      break;
  }
  SIGNET_CHECK(dtype != tensor::DType::kI32);
}

}  // namespace HWY_NAMESPACE
}  // namespace signet::backend::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace signet::backend::cpu {

HWY_EXPORT(ConvertRow);

void Embed(ThreadPool& pool, const EmbedArgs& args) {
  const WeightView& table = args.table;
  pool.ParallelFor(*args.rows.live, [&](int64_t row, int) {
    const int64_t id = args.ids[row];
    SIGNET_CHECK(id >= 0 && id < table.rows);
    HWY_DYNAMIC_DISPATCH(ConvertRow)
    (StoredRow(table.data, table.dtype, id, table.cols), table.dtype,
     table.cols, args.out + row * table.cols);
  });
}

}  // namespace signet::backend::cpu
#endif
