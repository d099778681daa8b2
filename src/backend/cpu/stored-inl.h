// Reads values as they are stored (f32, bf16, f16) into f32 vectors.
// Re-included for each Highway target.

#if defined(SIGNET_BACKEND_CPU_STORED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SIGNET_BACKEND_CPU_STORED_INL_H_
#undef SIGNET_BACKEND_CPU_STORED_INL_H_
#else
#define SIGNET_BACKEND_CPU_STORED_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "backend/cpu/simd_targets.h"
// Highway comes after its configuration.
#include "base/check.h"
#include "hwy/highway.h"
#include "tensor/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace signet::backend::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// A vector of f32 from stored values.
template <class D>
HWY_INLINE hn::Vec<D> LoadStored(D d, const float* from) {
  return hn::LoadU(d, from);
}
template <class D>
HWY_INLINE hn::Vec<D> LoadStored(D d, const hwy::bfloat16_t* from) {
  const hn::Rebind<uint16_t, D> d16;
  const hn::Rebind<uint32_t, D> d32;
  const auto bits = hn::LoadU(d16, reinterpret_cast<const uint16_t*>(from));
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, bits)));
}
template <class D>
HWY_INLINE hn::Vec<D> LoadStored(D d, const hwy::float16_t* from) {
  const hn::Rebind<hwy::float16_t, D> d16;
  return hn::PromoteTo(d, hn::LoadU(d16, from));
}

/// The same for the first n < Lanes(d) values; the other lanes are 0.
template <class D, typename T>
HWY_INLINE hn::Vec<D> LoadStoredN(D d, const T* from, size_t n) {
  if constexpr (sizeof(T) == sizeof(float)) {
    return hn::MaskedLoad(hn::FirstN(d, n), d, from);
  } else {
    T padded[hn::MaxLanes(d)] = {};
    std::memcpy(padded, from, n * sizeof(T));
    return LoadStored(d, padded);
  }
}

/// One value.
template <typename T>
HWY_INLINE float LoadStored1(const T* from) {
  const hn::CappedTag<float, 1> d;
  return hn::GetLane(LoadStored(d, from));
}

/// Calls body(pointer) with `data` as a pointer to its stored type.
template <class Body>
HWY_INLINE void WithStored(tensor::DType dtype, const void* data,
                           const Body& body) {
  switch (dtype) {
    case tensor::DType::kF32:
      return body(static_cast<const float*>(data));
    case tensor::DType::kBF16:
      return body(static_cast<const hwy::bfloat16_t*>(data));
    case tensor::DType::kF16:
      return body(static_cast<const hwy::float16_t*>(data));
    case tensor::DType::kI32:
      break;
  }
  SIGNET_CHECK(!"a weight is f32, bf16 or f16");
}

}  // namespace HWY_NAMESPACE
}  // namespace signet::backend::cpu
HWY_AFTER_NAMESPACE();

#endif  // SIGNET_BACKEND_CPU_STORED_INL_H_
