// Ops that treat every element alike: activation, adds, the identity reduction.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/elementwise.cpp"
// clang-format off: Highway's order.
#include "backend/cpu/simd_targets.h"
#include "hwy/foreach_target.h"
#include "backend/cpu/math-inl.h"
// clang-format on
#include <algorithm>
#include <bit>
#include <cstring>

#include "backend/cpu/ops.h"

HWY_BEFORE_NAMESPACE();
namespace signet::backend::cpu {
namespace HWY_NAMESPACE {
namespace {

// Small enough to share a row among threads, large enough to be worth a task.
constexpr int64_t kBlock = 4096;

// Calls body(offset, n) for blocks that tile [0, total).
template <class Body>
void ForBlocks(ThreadPool& pool, int64_t total, const Body& body) {
  pool.ParallelFor((total + kBlock - 1) / kBlock, [&](int64_t block, int) {
    const int64_t at = block * kBlock;
    body(at, static_cast<size_t>(std::min(kBlock, total - at)));
  });
}

void ActivationAll(ThreadPool& pool, const ActivationArgs& args) {
  const int64_t total = *args.rows.live * args.multiple * args.width;
  ForBlocks(pool, total, [&](int64_t at, size_t n) {
    const hn::CappedTag<float, 16> d;
    ForVectors(n, [&](size_t, const auto& load, const auto& store) {
      store(hn::Mul(Silu(d, load(args.gate + at)), load(args.up + at)),
            args.out + at);
    });
  });
}

void ResidualAddAll(ThreadPool& pool, const ResidualAddArgs& args) {
  const int64_t total = *args.rows.live * args.width;
  ForBlocks(pool, total, [&](int64_t at, size_t n) {
    ForVectors(n, [&](size_t, const auto& load, const auto& store) {
      store(hn::Add(load(args.residual + at), load(args.addend + at)),
            args.out + at);
    });
  });
}

void GatedAddAll(ThreadPool& pool, const GatedAddArgs& args) {
  pool.ParallelFor(*args.rows.live, [&](int64_t row, int) {
    const hn::CappedTag<float, 16> d;
    const auto gate = hn::Set(d, Sigmoid1(args.gate[row]));
    const int64_t at = row * args.width;
    ForVectors(static_cast<size_t>(args.width), [&](size_t, const auto& load,
                                                    const auto& store) {
      store(hn::MulAdd(gate, load(args.x + at), load(args.addend + at)),
            args.out + at);
    });
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace signet::backend::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace signet::backend::cpu {

HWY_EXPORT(ActivationAll);
HWY_EXPORT(ResidualAddAll);
HWY_EXPORT(GatedAddAll);

void Activation(ThreadPool& pool, const ActivationArgs& args) {
  HWY_DYNAMIC_DISPATCH(ActivationAll)(pool, args);
}

void ResidualAdd(ThreadPool& pool, const ResidualAddArgs& args) {
  HWY_DYNAMIC_DISPATCH(ResidualAddAll)(pool, args);
}

void GatedAdd(ThreadPool& pool, const GatedAddArgs& args) {
  HWY_DYNAMIC_DISPATCH(GatedAddAll)(pool, args);
}

void Round(ThreadPool& pool, const RoundArgs& args) {
  auto* out = static_cast<uint16_t*>(args.out);
  pool.ParallelFor(*args.rows.live * args.multiple, [&](int64_t row, int) {
    for (int64_t i = row * args.width; i < (row + 1) * args.width; ++i) {
      const auto bits = std::bit_cast<uint32_t>(args.x[i]);
      const uint32_t half = 0x7fff + ((bits >> 16) & 1);
      const bool is_nan = (bits & 0x7fffffff) > 0x7f800000;
      out[i] = static_cast<uint16_t>(is_nan ? (bits >> 16) | 0x40
                                            : (bits + half) >> 16);
    }
  });
}

void IdentityReduce(ThreadPool& pool, const IdentityReduceArgs& args) {
  pool.ParallelFor(*args.rows.live, [&](int64_t row, int) {
    std::memcpy(args.out + row * args.width, args.x + row * args.width,
                static_cast<size_t>(args.width) * sizeof(float));
  });
}

}  // namespace signet::backend::cpu
#endif  // HWY_ONCE
