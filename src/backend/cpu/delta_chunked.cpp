// The gated delta rule over chunks of one sequence (Yang et al., "Gated Delta
// Networks", 2024). With G the running sum of the log decays of a chunk and
// D_ij = exp(G_i - G_j) for j <= i:
//   L_ij = beta_i (k_i . k_j) D_ij, j < i      A_ij = (q_i . k_j) D_ij, j <= i
//   X    = (I + L)^-1 beta (V - exp(G) K S)    by forward substitution
//   O    = exp(G) Q S + A X
//   S   <- exp(G_C) S + (exp(G_C - G) K)^T X
// which is U - W S of the paper with S taken inside the inverse, so that no W
// is formed. Exponents are differences that are never positive; G is summed in
// double, since one decay may be e^-300 and its neighbours near 1.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/delta_chunked.cpp"
// clang-format off: Highway's order.
#include "backend/cpu/simd_targets.h"
#include "hwy/foreach_target.h"
#include "backend/cpu/delta_heads-inl.h"
#include "backend/cpu/math-inl.h"
#include "backend/cpu/tile-inl.h"
// clang-format on
#include <algorithm>
#include <limits>
#include <utility>

#include "backend/cpu/ops.h"
#include "tensor/delta_chunk.h"

HWY_BEFORE_NAMESPACE();
namespace signet::backend::cpu {
namespace HWY_NAMESPACE {
namespace {

constexpr size_t kChunk = tensor::kDeltaChunk;

void Scale(float* x, size_t n, float factor) {
  const auto f = hn::Set(hn::CappedTag<float, 16>(), factor);
  ForVectors(n, [&](size_t, const auto& load, const auto& store) {
    store(hn::Mul(load(x), f), x);
  });
}

// One value head and the scratch it works in.
class ChunkedHead {
 public:
  ChunkedHead(const DeltaRuleArgs& args, int64_t head)
      : head_(args, head),
        key_dim_(static_cast<size_t>(args.key_dim)),
        value_dim_(static_cast<size_t>(args.value_dim)),
        out_stride_(static_cast<size_t>(args.value_heads * args.value_dim)) {
    float* next = args.scratch + head * tensor::DeltaScratchFloats(
                                            args.key_dim, args.value_dim);
    const auto take = [&next](size_t rows, size_t columns) {
      return std::exchange(next, next + rows * columns);
    };
    q_ = take(kChunk, key_dim_);
    k_ = take(kChunk, key_dim_);
    k_turned_ = take(key_dim_, kChunk);
    x_ = take(kChunk, value_dim_);
    l_ = take(kChunk, kChunk);
    a_ = take(kChunk, kChunk);
  }

  // Rows [first, first + n), n <= kChunk.
  void Run(int64_t first, size_t n, float* state) {
    LoadRows(first, n);
    MakeTriangles(n);
    Solve(first, n, state);
    WriteOut(first, n, state);
    UpdateState(n, state);
  }

 private:
  void LoadRows(int64_t first, size_t n) {
    head_.Betas(first, n, beta_);
    head_.LogDecays(first, n, decay_);
    double sum = 0;
    for (size_t i = 0; i < n; ++i) {
      const int64_t row = first + static_cast<int64_t>(i);
      head_.Query(row, q_ + i * key_dim_);
      head_.Key(row, k_ + i * key_dim_);
      sum += double{decay_[i]};
      log_decay_[i] = sum;
    }
    for (size_t i = 0; i < n; ++i) {
      decay_[i] = static_cast<float>(log_decay_[i]);
      rest_[i] = static_cast<float>(sum - log_decay_[i]);
    }
    const hn::CappedTag<float, 16> d;
    ForVectors(n, [&](size_t, const auto& load, const auto& store) {
      store(DecayOf(d, load(decay_)), decay_);
      store(DecayOf(d, load(rest_)), rest_);
    });
    TransposeRows(StridedRows<float>{k_, key_dim_}, n, key_dim_, k_turned_,
                  kChunk);
  }

  // l_ = -L and a_ = A, with zeros right of the diagonal as far as the products
  // below read.
  void MakeTriangles(size_t n) {
    const hn::CappedTag<float, 16> d;
    const StridedRows<float> keys{k_turned_, kChunk};
    for (size_t first = 0; first < n; first += kTileRows) {
      const size_t rows = std::min(kTileRows, n - first);
      const size_t columns = first + kTileRows;
      for (size_t i = first; i < first + rows; ++i) {
        std::fill_n(l_ + i * kChunk, columns, 0.0f);
        std::fill_n(a_ + i * kChunk, columns, 0.0f);
      }
      MulAddMatrix(rows, RowsAt(k_ + first * key_dim_, key_dim_), 1, keys,
                   key_dim_, RowsAt(l_ + first * kChunk, kChunk), columns);
      MulAddMatrix(rows, RowsAt(q_ + first * key_dim_, key_dim_), 1, keys,
                   key_dim_, RowsAt(a_ + first * kChunk, kChunk), columns);
      for (size_t i = first; i < first + rows; ++i) {
        float exponent[kChunk];
        for (size_t j = 0; j <= i; ++j) {
          exponent[j] = static_cast<float>(log_decay_[i] - log_decay_[j]);
        }
        std::fill(exponent + i + 1, exponent + columns,
                  -std::numeric_limits<float>::infinity());
        float* l = l_ + i * kChunk;
        float* a = a_ + i * kChunk;
        const auto minus_beta = hn::Set(d, -beta_[i]);
        ForVectors(columns, [&](size_t, const auto& load, const auto& store) {
          const auto between = DecayOf(d, load(exponent));
          store(hn::Mul(hn::Mul(minus_beta, load(l)), between), l);
          store(hn::Mul(load(a), between), a);
        });
      }
    }
  }

  void Solve(int64_t first, size_t n, const float* state) {
    const hn::CappedTag<float, 16> d;
    std::fill_n(x_, n * value_dim_, 0.0f);
    MulAddMatrix(n, RowsAt(k_, key_dim_), 1,
                 StridedRows<float>{state, value_dim_}, key_dim_,
                 RowsAt(x_, value_dim_), value_dim_);
    for (size_t i = 0; i < n; ++i) {
      const float* v = head_.Values(first + static_cast<int64_t>(i));
      float* x = x_ + i * value_dim_;
      const auto decay = hn::Set(d, decay_[i]);
      const auto beta = hn::Set(d, beta_[i]);
      ForVectors(value_dim_, [&](size_t, const auto& load, const auto& store) {
        store(hn::Mul(beta, hn::NegMulAdd(decay, load(x), load(v))), x);
      });
    }
    // Blocks of rows take the rows above as a product, then each other.
    for (size_t top = 0; top < n; top += kTileRows) {
      const size_t rows = std::min(kTileRows, n - top);
      float* x = x_ + top * value_dim_;
      const float* l = l_ + top * kChunk;
      MulAddMatrix(rows, RowsAt(l, kChunk), 1,
                   StridedRows<float>{x_, value_dim_}, top,
                   RowsAt(x, value_dim_), value_dim_);
      for (size_t r = 1; r < rows; ++r) {
        MulAddMatrix(1, RowsAt(l + r * kChunk + top, kChunk), 1,
                     StridedRows<float>{x, value_dim_}, r,
                     RowsAt(x + r * value_dim_, value_dim_), value_dim_);
      }
    }
  }

  void WriteOut(int64_t first, size_t n, const float* state) const {
    float* out = head_.Out(first);
    for (size_t i = 0; i < n; ++i) {
      std::fill_n(out + i * out_stride_, value_dim_, 0.0f);
    }
    MulAddMatrix(n, RowsAt(q_, key_dim_), 1,
                 StridedRows<float>{state, value_dim_}, key_dim_,
                 RowsAt(out, out_stride_), value_dim_);
    for (size_t i = 0; i < n; ++i) {
      Scale(out + i * out_stride_, value_dim_, decay_[i]);
    }
    for (size_t top = 0; top < n; top += kTileRows) {
      const size_t rows = std::min(kTileRows, n - top);
      MulAddMatrix(rows, RowsAt(a_ + top * kChunk, kChunk), 1,
                   StridedRows<float>{x_, value_dim_}, top + rows,
                   RowsAt(out + top * out_stride_, out_stride_), value_dim_);
    }
  }

  void UpdateState(size_t n, float* state) {
    for (size_t i = 0; i < n; ++i) {
      Scale(x_ + i * value_dim_, value_dim_, rest_[i]);
    }
    Scale(state, key_dim_ * value_dim_, decay_[n - 1]);
    MulAddMatrix(key_dim_, RowsAt(k_turned_, kChunk), 1,
                 StridedRows<float>{x_, value_dim_}, n,
                 RowsAt(state, value_dim_), value_dim_);
  }

  const DeltaHead head_;
  const size_t key_dim_;
  const size_t value_dim_;
  const size_t out_stride_;
  float* q_;                  // [C, dk]
  float* k_;                  // [C, dk]
  float* k_turned_;           // [dk, C]
  float* x_;                  // [C, dv]
  float* l_;                  // [C, C]
  float* a_;                  // [C, C]
  double log_decay_[kChunk];  // G
  float decay_[kChunk];       // exp(G)
  float rest_[kChunk];        // exp(G_C - G)
  float beta_[kChunk];
};

void DeltaChunkedAll(ThreadPool& pool, const DeltaRuleArgs& args) {
  const int64_t live = *args.rows.live;
  if (live == 0) return;
  pool.ParallelFor(args.value_heads, [&](int64_t task, int) {
    float* state = DeltaHead(args, task).State(0);
    if (args.rows.position[0] == 0) {
      std::fill_n(state, args.key_dim * args.value_dim, 0.0f);
    }
    ChunkedHead head(args, task);
    for (int64_t row = 0; row < live; row += tensor::kDeltaChunk) {
      const int64_t count = std::min(tensor::kDeltaChunk, live - row);
      head.Run(row, static_cast<size_t>(count), state);
    }
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace signet::backend::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace signet::backend::cpu {

HWY_EXPORT(DeltaChunkedAll);

void DeltaChunked(ThreadPool& pool, const DeltaRuleArgs& args) {
  HWY_DYNAMIC_DISPATCH(DeltaChunkedAll)(pool, args);
}

}  // namespace signet::backend::cpu
#endif  // HWY_ONCE
