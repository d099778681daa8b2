#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "backend/cpu/attention_testing.h"
#include "backend/cpu/kernel_testing.h"
#include "backend/cpu/ops.h"
#include "backend/cpu/sequence_testing.h"

namespace signet::backend::cpu {
namespace {

using tensor::DType;
using namespace testing;  // NOLINT(google-build-using-namespace)

// Queries, keys and values of `slots` sequences, all `length` long.
class Problem {
 public:
  Problem(Random& random, const CacheShape& shape, int64_t heads)
      : shape_(shape), heads_(heads), cache_(random, shape) {
    for (int64_t slot = 0; slot < shape.slots; ++slot) {
      q_.push_back(
          RandomFloats(random, shape.context * heads * shape.head_dim));
      for (float& value : q_.back()) value *= 4;
      gates_.push_back(
          RandomFloats(random, shape.context * heads * 2 * shape.head_dim));
      const int64_t width = shape.kv_heads * shape.head_dim;
      k_.push_back(RandomFloats(random, shape.context * width));
      v_.push_back(RandomFloats(random, shape.context * width));
    }
  }

  int64_t width() const { return heads_ * shape_.head_dim; }

  void AppendAll(ThreadPool& pool) {
    for (int64_t slot = 0; slot < shape_.slots; ++slot) {
      const SequenceRows rows = SequenceRows::One(shape_.context, slot, 0);
      const auto s = static_cast<size_t>(slot);
      KvAppend(pool, {rows.view(), k_[s].data(), v_[s].data(), cache_.view()});
    }
  }

  // The rows (slots[i], positions[i]) in one call.
  std::vector<float> Run(ThreadPool& pool, const std::vector<int32_t>& slots,
                         const std::vector<int32_t>& positions) {
    const SequenceRows rows = SequenceRows::Each(slots, positions);
    std::vector<float> q, gates;
    for (size_t i = 0; i < slots.size(); ++i) {
      const auto slot = static_cast<size_t>(slots[i]);
      const auto* from = q_[slot].data() + positions[i] * width();
      q.insert(q.end(), from, from + width());
      from = gates_[slot].data() + positions[i] * 2 * width();
      gates.insert(gates.end(), from, from + 2 * width());
    }
    Guarded<float> out(rows.capacity() * width());
    Attention(pool, {.rows = rows.view(),
                     .heads = heads_,
                     .scale = Scale(),
                     .q = q.data(),
                     .q_gate = gates.data(),
                     .cache = cache_.view(),
                     .out = out.data()});
    return Written(out, rows.live() * width());
  }

  // Positions [begin, end) of a slot, `piece` rows a call; keys and values are
  // appended with them.
  std::vector<float> Prefill(ThreadPool& pool, int32_t slot, int32_t begin,
                             int32_t end, int32_t piece) {
    std::vector<float> all;
    for (int32_t at = begin; at < end; at += piece) {
      const int32_t count = std::min(piece, end - at);
      const SequenceRows rows = SequenceRows::One(count, slot, at);
      const auto s = static_cast<size_t>(slot);
      const int64_t offset = at * shape_.kv_heads * shape_.head_dim;
      KvAppend(pool, {rows.view(), k_[s].data() + offset, v_[s].data() + offset,
                      cache_.view()});
      std::vector<int32_t> positions;
      for (int32_t i = 0; i < count; ++i) positions.push_back(at + i);
      const std::vector<float> got =
          Run(pool, std::vector<int32_t>(positions.size(), slot), positions);
      all.insert(all.end(), got.begin(), got.end());
    }
    return all;
  }

  std::vector<double> Want(int32_t slot, int32_t position) const {
    std::vector<double> want;
    const auto* q = q_[static_cast<size_t>(slot)].data() + position * width();
    const auto* gate =
        gates_[static_cast<size_t>(slot)].data() + position * 2 * width();
    const int64_t dim = shape_.head_dim;
    for (int64_t head = 0; head < heads_; ++head) {
      const int64_t kv = head / (heads_ / shape_.kv_heads);
      std::vector<double> weights;
      double most = -1e300, sum = 0;
      for (int64_t t = 0; t <= position; ++t) {
        double dot = 0;
        for (int64_t i = 0; i < dim; ++i) {
          dot += double{q[head * dim + i]} * cache_.Key(slot, t, kv, i);
        }
        weights.push_back(dot * Scale());
        most = std::max(most, weights.back());
      }
      for (double& weight : weights) {
        weight = std::exp(weight - most);
        sum += weight;
      }
      for (int64_t i = 0; i < dim; ++i) {
        double mean = 0;
        for (int64_t t = 0; t <= position; ++t) {
          mean +=
              weights[static_cast<size_t>(t)] * cache_.Value(slot, t, kv, i);
        }
        want.push_back(mean / sum * SigmoidOf(gate[(head * 2 + 1) * dim + i]));
      }
    }
    return want;
  }

 private:
  float Scale() const {
    return 1 / std::sqrt(static_cast<float>(shape_.head_dim));
  }

  CacheShape shape_;
  int64_t heads_;
  PagedCache cache_;
  std::vector<std::vector<float>> q_, gates_, k_, v_;
};

struct Heads {
  int64_t heads;
  int64_t kv_heads;
  int64_t dim;
  int64_t page_size;
};
constexpr Heads kHeads[] = {{1, 1, 24, 5},   {4, 2, 32, 16},   {8, 1, 64, 64},
                            {6, 3, 128, 1},  {16, 2, 256, 48}, {1, 1, 512, 7},
                            {40, 1, 17, 200}};

TEST(AttentionTest, DecodeRowsAgreeWithDouble) {
  Random random(1);
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const auto& [heads, kv_heads, dim, page_size] : kHeads) {
      const CacheShape shape = {dtype, 5, 200, page_size, kv_heads, dim};
      Problem problem(random, shape, heads);
      ThreadPool pool(2);
      problem.AppendAll(pool);
      const std::vector<int32_t> slots = {3, 0, 4, 1, 2};
      const std::vector<int32_t> positions = {0, 63, 64, 127, 199};
      const std::vector<float> got = SameEverywhere(
          [&](ThreadPool& p) { return problem.Run(p, slots, positions); });
      std::vector<double> want;
      for (size_t i = 0; i < slots.size(); ++i) {
        const std::vector<double> row = problem.Want(slots[i], positions[i]);
        want.insert(want.end(), row.begin(), row.end());
        const std::vector<float> alone =
            problem.Run(pool, {slots[i]}, {positions[i]});
        const int64_t width = problem.width();
        EXPECT_TRUE(SameBits(
            alone.data(), got.data() + static_cast<int64_t>(i) * width, width));
      }
      EXPECT_LT(WorstError(got, want), 3e-6) << heads << " " << dim;
    }
  }
}

TEST(AttentionTest, PrefillGivesTheBitsOfDecodeHoweverItIsCut) {
  Random random(2);
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const auto& [heads, kv_heads, dim, page_size] : kHeads) {
      const int32_t length = dim > 200 ? 67 : 135;
      const CacheShape shape = {dtype, 2, length, page_size, kv_heads, dim};
      Problem problem(random, shape, heads);
      const std::vector<float> whole = SameEverywhere([&](ThreadPool& pool) {
        return problem.Prefill(pool, 1, 0, length, length);
      });
      std::vector<double> want;
      for (int32_t position = 0; position < length; ++position) {
        const std::vector<double> row = problem.Want(1, position);
        want.insert(want.end(), row.begin(), row.end());
      }
      EXPECT_LT(WorstError(whole, want), 3e-6) << heads << " " << dim;
      // A cache whose later positions hold NaN: no row looks ahead.
      for (const int32_t piece : {1, 7, 64}) {
        Problem fresh = problem;
        ThreadPool pool(2);
        EXPECT_EQ(fresh.Prefill(pool, 1, 0, length, piece), whole) << piece;
      }
    }
  }
}

TEST(AttentionTest, RowsOfSeveralSequencesInOneCallDoNotMeet) {
  Random random(5);
  Problem problem(random, {DType::kF32, 3, 80, 16, 2, 32}, 4);
  ThreadPool pool(2);
  problem.AppendAll(pool);
  const std::vector<int32_t> slots = {1, 1, 1, 0, 0, 2, 1};
  const std::vector<int32_t> positions = {70, 71, 72, 3, 4, 79, 73};
  const std::vector<float> together = problem.Run(pool, slots, positions);
  for (size_t i = 0; i < slots.size(); ++i) {
    const std::vector<float> alone =
        problem.Run(pool, {slots[i]}, {positions[i]});
    EXPECT_TRUE(
        SameBits(alone.data(),
                 together.data() + static_cast<int64_t>(i) * problem.width(),
                 problem.width()));
  }
}

TEST(AttentionTest, LargeScoresStayFinite) {
  Random random(3);
  const CacheShape shape = {DType::kF32, 1, 130, 16, 1, 64};
  ThreadPool pool(1);
  const SequenceRows rows = SequenceRows::One(1, 0, 129);
  const std::vector<float> q(128, 40.0f), gate(256, 99.0f);
  PagedCache cache(random, shape);
  for (int64_t t = 0; t < 130; ++t) {
    // Scores of 0 but for one of 102400 at position 70.
    std::vector<float> key(64, t == 70 ? 40.0f : 0.0f);
    std::vector<float> value(64, static_cast<float>(t));
    const SequenceRows row = SequenceRows::One(1, 0, t);
    KvAppend(pool, {row.view(), key.data(), value.data(), cache.view()});
  }
  Guarded<float> out(4 * 128);
  Attention(pool, {.rows = rows.view(),
                   .heads = 2,
                   .q = q.data(),
                   .q_gate = gate.data(),
                   .cache = cache.view(),
                   .out = out.data()});
  for (const float value : Written(out, 128)) EXPECT_EQ(value, 70.0f);
}

TEST(AttentionTest, NoLiveRowWritesNothing) {
  Random random(4);
  Problem problem(random, {DType::kF32, 1, 4, 2, 1, 8}, 1);
  ThreadPool pool(2);
  EXPECT_TRUE(problem.Run(pool, {}, {}).empty());
}

}  // namespace
}  // namespace signet::backend::cpu
