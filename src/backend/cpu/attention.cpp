// Causal attention over the paged cache, by blocks of positions with a running
// maximum and sum (Milakov and Gimelshein, "Online normalizer calculation for
// softmax", 2018; Dao et al., "FlashAttention", 2022).
//
// A block of keys is turned once, so that scores run over vectors of positions,
// and serves all queries of a tile: the heads of a group and, in a prefill,
// several rows. Blocks start at position 0 and each query runs over its own
// positions in order, so its bits do not depend on the tile.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/attention.cpp"
// clang-format off: Highway's order.
#include "backend/cpu/simd_targets.h"
#include "hwy/foreach_target.h"
#include "backend/cpu/math-inl.h"
#include "backend/cpu/tile-inl.h"
// clang-format on
#include <algorithm>
#include <limits>

#include "backend/cpu/head_dim.h"
#include "backend/cpu/kv_rows.h"
#include "backend/cpu/ops.h"

HWY_BEFORE_NAMESPACE();
namespace signet::backend::cpu {
namespace HWY_NAMESPACE {
namespace {

constexpr size_t kBlock = 64;       // positions
constexpr size_t kMaxQueries = 32;  // of a tile

// Rows [first_row, last_row) of one slot with heads [first_head, last_head) of
// one group: at most kMaxQueries pairs.
struct TileRange {
  int64_t first_row;
  int64_t last_row;
  int64_t kv_head;
  int64_t first_head;
  int64_t last_head;
};

struct Query {
  const float* q;
  const float* gate;
  float* out;  // the weighted sum of values, until it is divided
  int64_t position;
  float max;
  float sum;
};

template <typename T>
class AttentionTile {
 public:
  AttentionTile(const AttentionArgs& args, const TileRange& range)
      : args_(args),
        range_(range),
        dim_(static_cast<size_t>(args.cache.head_dim)) {
    for (int64_t row = range.first_row; row < range.last_row; ++row) {
      for (int64_t head = range.first_head; head < range.last_head; ++head) {
        const int64_t at = (row * args.heads + head) * args.cache.head_dim;
        queries_[count_++] = {
            .q = args.q + at,
            .gate = args.q_gate + 2 * at + args.cache.head_dim,
            .out = args.out + at,
            .position = args.rows.position[row],
            .max = -std::numeric_limits<float>::infinity(),
            .sum = 0.0f};
        std::fill_n(args.out + at, dim_, 0.0f);
      }
    }
  }

  void Run() {
    int64_t last = 0;
    for (size_t i = 0; i < count_; ++i) {
      last = std::max(last, queries_[i].position);
    }
    for (int64_t base = 0; base <= last; base += kBlock) {
      LoadBlock(base, Limit(last, base));
      Score();
      size_t i = 0;
      while (i < count_) {
        // Queries that end at the same place are summed together.
        const size_t limit = Limit(queries_[i].position, base);
        size_t n = 1;
        while (i + n < count_ &&
               Limit(queries_[i + n].position, base) == limit) {
          ++n;
        }
        if (limit > 0) Accumulate(i, n, limit);
        i += n;
      }
    }
    for (size_t i = 0; i < count_; ++i) Finish(queries_[i]);
  }

 private:
  // A panel of values: kBlock rows of kBlock columns, so that it lies in the
  // cache without conflicts while all queries pass over it.
  static constexpr size_t kPanelSize = kBlock * kBlock;
  struct PackedValues {
    const float* panels;
    StridedRows<float> From(size_t row, size_t column) const {
      return {panels + column / kBlock * kPanelSize + row * kBlock +
                  column % kBlock,
              kBlock};
    }
  };

  // How many positions of the block at `base` a query at `position` sees.
  static size_t Limit(int64_t position, int64_t base) {
    return static_cast<size_t>(
        std::clamp<int64_t>(position + 1 - base, 0, kBlock));
  }

  // Packing pays when enough queries use it.
  bool packs_values() const { return count_ > 2 * kTileRows; }

  void LoadBlock(int64_t base, size_t n) {
    const int64_t slot = args_.rows.slot[range_.first_row];
    const T* keys[kBlock];
    for (size_t i = 0; i < n; ++i) {
      const int64_t offset = KvOffset(
          args_.cache, slot, base + static_cast<int64_t>(i), range_.kv_head);
      keys[i] = static_cast<const T*>(args_.cache.k) + offset;
      values_[i] = static_cast<const T*>(args_.cache.v) + offset;
    }
    // Whole vectors of scores are computed, so the columns past n exist.
    if (n < kBlock) std::fill_n(keys_turned_, dim_ * kBlock, 0.0f);
    TransposeRows(ScatteredRows<T>{keys, 0}, n, dim_, keys_turned_, kBlock);
    if (packs_values()) PackValues(n);
  }

  void PackValues(size_t n) {
    const hn::CappedTag<float, 16> d;
    for (size_t column = 0; column < dim_; column += hn::Lanes(d)) {
      const size_t left = dim_ - column;
      float* to = packed_ + column / kBlock * kPanelSize + column % kBlock;
      for (size_t i = 0; i < n; ++i) {
        const auto v = left >= hn::Lanes(d)
                           ? LoadStored(d, values_[i] + column)
                           : LoadStoredN(d, values_[i] + column, left);
        hn::Store(v, d, to + i * kBlock);
      }
    }
  }

  void Score() {
    std::fill_n(scores_[0], count_ * kBlock, 0.0f);
    MulAddMatrix(
        count_, [this](size_t i) { return queries_[i].q; }, 1,
        StridedRows<float>{keys_turned_, kBlock}, dim_,
        [this](size_t i) { return scores_[i]; }, kBlock);
  }

  // Queries [first, first + n) gain the first `limit` positions of the block.
  void Accumulate(size_t first, size_t n, size_t limit) {
    for (size_t i = first; i < first + n; ++i) {
      ToWeights(queries_[i], limit, scores_[i]);
    }
    const auto weights = [&](size_t i) -> const float* {
      return scores_[first + i];
    };
    const auto out = [&](size_t i) { return queries_[first + i].out; };
    if (packs_values()) {
      MulAddMatrix(n, weights, 1, PackedValues{packed_}, limit, out, dim_);
    } else {
      MulAddMatrix(n, weights, 1, ScatteredRows<T>{values_, 0}, limit, out,
                   dim_);
    }
  }

  // Scores to e^(score - max) under the new maximum; what was summed under the
  // old one is brought to it.
  void ToWeights(Query& query, size_t limit, float* scores) {
    const hn::CappedTag<float, 16> d;
    constexpr size_t kLanes = hn::MaxLanes(hn::CappedTag<float, 16>());
    const auto scale = hn::Set(d, args_.scale);
    const auto floor = hn::Set(d, -std::numeric_limits<float>::infinity());
    auto most = floor;
    for (size_t i = 0; i < kBlock; i += kLanes) {
      const auto seen = hn::FirstN(d, limit - std::min(limit, i));
      const auto score =
          hn::IfThenElse(seen, hn::Mul(hn::Load(d, scores + i), scale), floor);
      hn::Store(score, d, scores + i);
      most = hn::Max(most, score);
    }
    const float max = std::max(query.max, hn::GetLane(hn::MaxOfLanes(d, most)));
    Sum16 sum;
    for (size_t i = 0; i < kBlock; i += kLanes) {
      const auto weight =
          Exp(d, hn::Sub(hn::Load(d, scores + i), hn::Set(d, max)));
      hn::Store(weight, d, scores + i);
      sum.Add(i / kLanes % Sum16::kParts, weight);
    }
    const float correction = Exp1(query.max - max);
    query.sum = Fma1(query.sum, correction, sum.Total());
    query.max = max;
    if (correction == 1.0f) return;
    const auto factor = hn::Set(d, correction);
    ForVectors(dim_, [&](size_t, const auto& load, const auto& store) {
      store(hn::Mul(load(query.out), factor), query.out);
    });
  }

  void Finish(const Query& query) const {
    const hn::CappedTag<float, 16> d;
    const auto inverse = hn::Set(d, 1.0f / query.sum);
    ForVectors(dim_, [&](size_t, const auto& load, const auto& store) {
      const auto mean = hn::Mul(load(query.out), inverse);
      store(hn::Mul(mean, Sigmoid(d, load(query.gate))), query.out);
    });
  }

  const AttentionArgs& args_;
  const TileRange range_;
  const size_t dim_;
  size_t count_ = 0;
  Query queries_[kMaxQueries];
  const T* values_[kBlock];
  HWY_ALIGN float scores_[kMaxQueries][kBlock];
  HWY_ALIGN float keys_turned_[kMaxHeadDim * kBlock];  // [dim, kBlock]
  HWY_ALIGN float packed_[kMaxHeadDim * kBlock];       // panels
};

template <typename T>
void RunRows(const AttentionArgs& args, TileRange range) {
  const int64_t end = range.last_row;
  while (range.first_row < end) {
    const int32_t* slot = args.rows.slot;
    range.last_row = range.first_row + 1;
    while (range.last_row < end &&
           slot[range.last_row] == slot[range.first_row]) {
      ++range.last_row;
    }
    AttentionTile<T>(args, range).Run();
    range.first_row = range.last_row;
  }
}

// How the rows and heads are cut into tasks: any cut gives the same bits.
struct Cut {
  int64_t rows;   // of a task
  int64_t heads;  // of a task, within a group
  int64_t row_tasks;
  int64_t head_tasks;  // a group
};

Cut MakeCut(const AttentionArgs& args, int64_t live, int threads) {
  const int64_t group = args.heads / args.cache.num_kv_heads;
  Cut cut = {.rows = 1,
             .heads = std::min<int64_t>(group, kMaxQueries),
             .row_tasks = live,
             .head_tasks = 0};
  if (live > 1 && args.rows.slot[0] == args.rows.slot[1]) {
    cut.rows = std::max<int64_t>(1, kMaxQueries / cut.heads);
    cut.row_tasks = (live + cut.rows - 1) / cut.rows;
  }
  const auto count = [&] {
    cut.head_tasks = (group + cut.heads - 1) / cut.heads;
    return cut.row_tasks * cut.head_tasks * args.cache.num_kv_heads;
  };
  while (count() < threads && cut.heads > 1) {
    cut.heads = (cut.heads + 1) / 2;
  }
  return cut;
}

void AttentionAll(ThreadPool& pool, const AttentionArgs& args) {
  const int64_t live = *args.rows.live;
  if (live == 0) return;
  SIGNET_CHECK(args.cache.head_dim <= kMaxHeadDim);
  const int64_t kv_heads = args.cache.num_kv_heads;
  const int64_t group = args.heads / kv_heads;
  const Cut cut = MakeCut(args, live, pool.num_threads());
  const int64_t parts = kv_heads * cut.head_tasks;
  pool.ParallelFor(cut.row_tasks * parts, [&](int64_t task, int) {
    // The last rows first: they are the longest of a sequence.
    const int64_t row = (cut.row_tasks - 1 - task / parts) * cut.rows;
    const int64_t kv_head = task % parts / cut.head_tasks;
    const int64_t head = task % cut.head_tasks * cut.heads;
    const TileRange range = {
        .first_row = row,
        .last_row = std::min(row + cut.rows, live),
        .kv_head = kv_head,
        .first_head = kv_head * group + head,
        .last_head = kv_head * group + std::min(head + cut.heads, group)};
    if (args.cache.dtype == tensor::DType::kBF16) {
      RunRows<hwy::bfloat16_t>(args, range);
    } else {
      RunRows<float>(args, range);
    }
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace signet::backend::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace signet::backend::cpu {

HWY_EXPORT(AttentionAll);

void Attention(ThreadPool& pool, const AttentionArgs& args) {
  HWY_DYNAMIC_DISPATCH(AttentionAll)(pool, args);
}

}  // namespace signet::backend::cpu
#endif  // HWY_ONCE
