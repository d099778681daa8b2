// Attention on the GPU against its definition in double precision, over the
// cache as it holds keys and values. The fp32 kernels are bound by 2e-6, the
// precision of their sums and of e^x. A prefill over a bf16 cache rounds q,
// which the definition does too, and its weights to bf16: each is off by up to
// 2^-9, 1.1e-3 in the mean, and so is a sum of them with random values; 2.5e-3.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "backend/kernel_bench.h"
#include "tests/conformance/attention_problem.h"

namespace signet::backend::gpu {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)
using backend::testing::KernelBench;
using tensor::DType;

class AttentionTest : public GpuKernelTest {};

// Queries and gates of given rows over a cache.
class Problem {
 public:
  Problem(Random& random, PagedCache& cache, int64_t heads, int64_t rows,
          float most_query = 4.0f)
      : cache_(cache),
        heads_(heads),
        q_(RandomFloats(random, rows * width(), most_query)),
        q_gate_(RandomFloats(random, rows * 2 * width(), 3.0f)) {}

  int64_t width() const { return heads_ * cache_.shape().head_dim; }

  // Rows of the call are rows first ... of the problem.
  std::vector<float> Run(GpuKernels& kernels, TestRows& rows, RowForm form,
                         int64_t first = 0) {
    DeviceArray<float> q(Part(q_, first, rows, width()));
    DeviceArray<float> q_gate(Part(q_gate_, first, rows, 2 * width()));
    DeviceArray<float> out(rows.capacity() * width());
    kernels.Attention(KernelBench::Launch(), {.rows = rows.device(),
                                              .form = form,
                                              .heads = heads_,
                                              .scale = Scale(),
                                              .q = q.data(),
                                              .q_gate = q_gate.data(),
                                              .cache = cache_.device(),
                                              .out = out.data()});
    EXPECT_EQ(kernels.TakeStatus(), kOk);
    EXPECT_EQ(cudaDeviceSynchronize(), kOk);
    return Written(out, rows.live() * width());
  }

  // Row i of the problem is (slots[i], positions[i]).
  std::vector<double> Want(const std::vector<int32_t>& slots,
                           const std::vector<int32_t>& positions,
                           bool rounds_query) const {
    const CacheShape& shape = cache_.shape();
    std::vector<float> q = q_;
    if (rounds_query) {
      for (float& x : q) x = FromBF16(BF16Bits(x));
    }
    std::vector<double> want;
    std::vector<float> keys, values;
    for (size_t i = 0; i < slots.size(); ++i) {
      if (i == 0 || slots[i] != slots[i - 1]) {
        // Up to the last of the following rows of the slot.
        size_t last = i;
        while (last + 1 < slots.size() && slots[last + 1] == slots[i]) ++last;
        keys = cache_.Keys(slots[i], positions[last] + 1);
        values = cache_.Values(slots[i], positions[last] + 1);
      }
      for (int64_t head = 0; head < heads_; ++head) {
        const int64_t at =
            (static_cast<int64_t>(i) * heads_ + head) * shape.head_dim;
        const int64_t kv = head / (heads_ / shape.kv_heads) * shape.head_dim;
        AppendHead(q.data() + at, q_gate_.data() + 2 * at + shape.head_dim,
                   keys.data() + kv, values.data() + kv, positions[i], want);
      }
    }
    return want;
  }

 private:
  void AppendHead(const float* q, const float* gate, const float* keys,
                  const float* values, int64_t position,
                  std::vector<double>& want) const {
    const int64_t dim = cache_.shape().head_dim;
    const int64_t stride = cache_.width();
    std::vector<double> weights;
    double most = -1e300;
    for (int64_t t = 0; t <= position; ++t) {
      double dot = 0;
      for (int64_t i = 0; i < dim; ++i) {
        dot += double{q[i]} * keys[t * stride + i];
      }
      weights.push_back(dot * Scale());
      most = std::max(most, weights.back());
    }
    double sum = 0;
    std::vector<double> mean(static_cast<size_t>(dim));
    for (int64_t t = 0; t <= position; ++t) {
      const double weight = std::exp(weights[static_cast<size_t>(t)] - most);
      sum += weight;
      for (int64_t i = 0; i < dim; ++i) {
        mean[static_cast<size_t>(i)] += weight * values[t * stride + i];
      }
    }
    for (int64_t i = 0; i < dim; ++i) {
      want.push_back(mean[static_cast<size_t>(i)] / sum /
                     (1 + std::exp(-double{gate[i]})));
    }
  }
  float Scale() const {
    return 1 / std::sqrt(static_cast<float>(cache_.shape().head_dim));
  }
  static std::vector<float> Part(const std::vector<float>& all, int64_t first,
                                 const TestRows& rows, int64_t width) {
    std::vector<float> part(all.begin() + first * width,
                            all.begin() + (first + rows.live()) * width);
    part.resize(static_cast<size_t>(rows.capacity() * width), NAN);
    return part;
  }

  PagedCache& cache_;
  int64_t heads_;
  std::vector<float> q_;
  std::vector<float> q_gate_;
};

struct Heads {
  int64_t heads;
  int64_t kv_heads;
  int64_t dim;
  int64_t page_size;
};
std::string Name(const Heads& heads, DType dtype) {
  return "heads " + std::to_string(heads.heads) + " dim " +
         std::to_string(heads.dim) + " page " +
         std::to_string(heads.page_size) + " " +
         std::string(tensor::Name(dtype));
}
// The widths of the tensor-core kernels, with pages that they take and that
// they do not, and any others.
constexpr Heads kHeads[] = {{16, 2, 256, 64}, {6, 1, 256, 16}, {8, 1, 64, 64},
                            {3, 3, 64, 48},   {9, 1, 128, 32}, {4, 2, 128, 5},
                            {1, 1, 24, 5},    {4, 2, 32, 16},  {1, 1, 510, 7},
                            {40, 1, 17, 200}, {4, 2, 8, 64}};

TEST_F(AttentionTest, DecodeRowsAgreeWithDouble) {
  Random random(1);
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    for (const Heads& heads : kHeads) {
      SCOPED_TRACE("seed 1, " + Name(heads, dtype));
      const std::vector<int32_t> slots = {3, 0, 4, 1, 2};
      const std::vector<int32_t> positions = {0, 63, 64, 130, 299};
      PagedCache cache(
          random, {dtype, 5, 300, heads.page_size, heads.kv_heads, heads.dim});
      for (size_t i = 0; i < slots.size(); ++i) {
        cache.Put(random, slots[i], 0, positions[i] + 1);
      }
      cache.Upload();
      Problem problem(random, cache, heads.heads, 5);
      TestRows rows(slots, positions, 7);
      const std::vector<float> got =
          problem.Run(kernels(), rows, RowForm::kSequenceEach);
      for (size_t i = 0; i < slots.size(); ++i) {
        // Alone in a call of the same shape, a row has the same bits.
        TestRows one({slots[i]}, {positions[i]}, 7);
        const std::vector<float> alone = problem.Run(
            kernels(), one, RowForm::kSequenceEach, static_cast<int64_t>(i));
        EXPECT_EQ(
            std::memcmp(alone.data(),
                        got.data() + static_cast<int64_t>(i) * problem.width(),
                        alone.size() * sizeof(float)),
            0);
      }
      const std::vector<double> want = problem.Want(slots, positions, false);
      EXPECT_LE(RelativeError(got, std::span<const double>(want)), 2e-6);
      EXPECT_TRUE(
          SameBits(got, problem.Run(kernels(), rows, RowForm::kSequenceEach)));
    }
  }
}

TEST_F(AttentionTest, LongRowsAgreeWithDouble) {
  Random random(2);
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    for (const Heads& heads : {Heads{16, 2, 256, 64}, Heads{2, 1, 64, 16}}) {
      for (const int32_t position : {1027, 2560}) {
        SCOPED_TRACE("seed 2, " + Name(heads, dtype));
        PagedCache cache(random, {dtype, 1, 4096, heads.page_size,
                                  heads.kv_heads, heads.dim});
        cache.Put(random, 0, 0, position + 1);
        cache.Upload();
        Problem problem(random, cache, heads.heads, 1);
        TestRows rows({0}, {position}, 1);
        const std::vector<double> want = problem.Want({0}, {position}, false);
        EXPECT_LE(
            RelativeError(problem.Run(kernels(), rows, RowForm::kSequenceEach),
                          std::span<const double>(want)),
            2e-6);
      }
    }
  }
}

// So many rows that their split sums do not fit the scratch but for few splits.
TEST_F(AttentionTest, ManyRowsAgreeWithDouble) {
  Random random(3);
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    PagedCache cache(random, {dtype, 2, 2048, 64, 1, 64});
    cache.Put(random, 0, 0, 1500);
    cache.Put(random, 1, 0, 700);
    cache.Upload();
    Problem problem(random, cache, 8, 2);
    TestRows rows({0, 1}, {1499, 699}, 4097);
    const std::vector<double> want = problem.Want({0, 1}, {1499, 699}, false);
    EXPECT_LE(
        RelativeError(problem.Run(kernels(), rows, RowForm::kSequenceEach),
                      std::span<const double>(want)),
        2e-6);
  }
}

// Whole and in pieces; pieces see a cache in which later positions are NaN.
TEST_F(AttentionTest, PrefillAgreesWithDoubleHoweverItIsCut) {
  Random random(4);
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    for (const Heads& heads : kHeads) {
      SCOPED_TRACE("seed 4, " + Name(heads, dtype));
      const int32_t length = 150;
      const CacheShape shape = {dtype,          2,        200, heads.page_size,
                                heads.kv_heads, heads.dim};
      PagedCache cache(random, shape);
      cache.Put(random, 1, 0, length);
      cache.Upload();
      Problem problem(random, cache, heads.heads, length);
      TestRows rows = TestRows::One(length, 1, 0, 160);
      const std::vector<float> whole =
          problem.Run(kernels(), rows, RowForm::kOneSequence);
      const bool rounds =
          dtype == DType::kBF16 && heads.dim % 64 == 0 && heads.dim <= 256;
      const std::vector<double> want =
          problem.Want(rows.slots(), rows.positions(), rounds);
      EXPECT_LE(RelativeError(whole, std::span<const double>(want)),
                rounds ? 2.5e-3 : 2e-6);

      const PagedCache all(std::move(cache));
      cache = PagedCache(random, shape);
      std::vector<float> pieces;
      for (int32_t at = 0; at < length; at += 41) {
        const int32_t count = std::min(41, length - at);
        cache.Copy(all, 1, at, at + count);
        cache.Upload();
        TestRows piece = TestRows::One(count, 1, at, 48);
        const std::vector<float> got =
            problem.Run(kernels(), piece, RowForm::kOneSequence, at);
        pieces.insert(pieces.end(), got.begin(), got.end());
      }
      EXPECT_TRUE(SameBits(pieces, whole));
    }
  }
}

// The flagship's heads, rows that do and do not fill tiles and blocks, after
// prefixes that do and do not, in pages that hold whole tiles and that do not.
// What lies past the last row is NaN. A row has the same bits in another call
// of fewer rows, and whatever the capacity.
TEST_F(AttentionTest, PrefillOfWholeGroupsAgreesWithDouble) {
  Random random(8);
  for (const Heads& heads :
       {Heads{16, 2, 256, 64}, Heads{16, 2, 256, 48}, Heads{8, 1, 256, 192},
        Heads{8, 1, 128, 64}, Heads{20, 1, 128, 24}}) {
    for (const int32_t start : {0, 1, 77, 191}) {
      for (const int32_t length : {1, 63, 64, 65, 127, 128, 129, 333}) {
        SCOPED_TRACE("seed 8, " + Name(heads, DType::kBF16) + " start " +
                     std::to_string(start) + " length " +
                     std::to_string(length));
        PagedCache cache(random, {DType::kBF16, 2, 600, heads.page_size,
                                  heads.kv_heads, heads.dim});
        cache.Put(random, 1, 0, start + length);
        cache.Upload();
        Problem problem(random, cache, heads.heads, length);
        TestRows rows = TestRows::One(length, 1, start, length + 23);
        const std::vector<float> got =
            problem.Run(kernels(), rows, RowForm::kOneSequence);
        const std::vector<double> want =
            problem.Want(rows.slots(), rows.positions(), true);
        EXPECT_LE(RelativeError(got, std::span<const double>(want)), 2.5e-3);
        EXPECT_TRUE(
            SameBits(got, problem.Run(kernels(), rows, RowForm::kOneSequence)));
        const int32_t first = length / 3;
        TestRows some =
            TestRows::One(length - first, 1, start + first, length + 100);
        EXPECT_TRUE(
            SameBits(problem.Run(kernels(), some, RowForm::kOneSequence, first),
                     std::vector<float>(got.begin() + first * problem.width(),
                                        got.end())));
      }
    }
  }
}

// Enough rows for several waves of blocks, whole and in chunks.
TEST_F(AttentionTest, ALongPrefillAgreesWithDouble) {
  Random random(9);
  const int32_t length = 1000;
  PagedCache cache(random, {DType::kBF16, 1, 1024, 64, 2, 256});
  cache.Put(random, 0, 0, length);
  cache.Upload();
  Problem problem(random, cache, 16, length);
  TestRows rows = TestRows::One(length, 0, 0, length);
  const std::vector<float> whole =
      problem.Run(kernels(), rows, RowForm::kOneSequence);
  const std::vector<double> want =
      problem.Want(rows.slots(), rows.positions(), true);
  EXPECT_LE(RelativeError(whole, std::span<const double>(want)), 2.5e-3);
  std::vector<float> chunks;
  for (int32_t at = 0; at < length; at += 384) {
    TestRows chunk = TestRows::One(std::min(384, length - at), 0, at, 384);
    const std::vector<float> got =
        problem.Run(kernels(), chunk, RowForm::kOneSequence, at);
    chunks.insert(chunks.end(), got.begin(), got.end());
  }
  EXPECT_TRUE(SameBits(chunks, whole));
}

// Scores that grow and fall by far more than what is summed can hold unscaled.
TEST_F(AttentionTest, GrowingScoresAgreeWithDouble) {
  Random random(10);
  const int32_t length = 300;
  PagedCache cache(random, {DType::kBF16, 1, 320, 64, 1, 256});
  cache.Put(random, 0, 0, length);
  cache.Upload();
  Problem problem(random, cache, 8, length, 60.0f);
  TestRows rows = TestRows::One(length, 0, 0, length);
  const std::vector<double> want =
      problem.Want(rows.slots(), rows.positions(), true);
  EXPECT_LE(RelativeError(problem.Run(kernels(), rows, RowForm::kOneSequence),
                          std::span<const double>(want)),
            2.5e-3);
}

// A late piece of few rows: the shape of another kernel.
TEST_F(AttentionTest, ShortPrefillAgreesWithDouble) {
  Random random(5);
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    for (const Heads& heads : {Heads{16, 2, 256, 64}, Heads{4, 2, 16, 16}}) {
      SCOPED_TRACE("seed 5, " + Name(heads, dtype));
      PagedCache cache(
          random, {dtype, 1, 1024, heads.page_size, heads.kv_heads, heads.dim});
      cache.Put(random, 0, 0, 605);
      cache.Upload();
      Problem problem(random, cache, heads.heads, 5);
      TestRows rows = TestRows::One(5, 0, 600, 8);
      const std::vector<double> want =
          problem.Want(rows.slots(), rows.positions(), false);
      EXPECT_LE(
          RelativeError(problem.Run(kernels(), rows, RowForm::kOneSequence),
                        std::span<const double>(want)),
          2e-6);
    }
  }
}

TEST_F(AttentionTest, PrefillFarIntoASequenceAgreesWithDouble) {
  Random random(6);
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    SCOPED_TRACE("seed 6");
    PagedCache cache(random, {dtype, 1, 2048, 64, 2, 256});
    cache.Put(random, 0, 0, 1530);
    cache.Upload();
    Problem problem(random, cache, 12, 30);
    TestRows rows = TestRows::One(30, 0, 1500, 64);
    const std::vector<double> want =
        problem.Want(rows.slots(), rows.positions(), dtype == DType::kBF16);
    EXPECT_LE(RelativeError(problem.Run(kernels(), rows, RowForm::kOneSequence),
                            std::span<const double>(want)),
              dtype == DType::kBF16 ? 2.5e-3 : 2e-6);
  }
}

TEST_F(AttentionTest, NoLiveRowWritesNothing) {
  Random random(7);
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    PagedCache cache(random, {dtype, 1, 64, 16, 1, 64});
    Problem problem(random, cache, 2, 1);
    for (const RowForm form : {RowForm::kSequenceEach, RowForm::kOneSequence}) {
      for (const int64_t capacity : {1, 32}) {
        TestRows rows({}, {}, capacity);
        EXPECT_TRUE(problem.Run(kernels(), rows, form).empty());
      }
    }
  }
}

}  // namespace
}  // namespace signet::backend::gpu
