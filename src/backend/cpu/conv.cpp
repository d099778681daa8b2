// The causal depthwise convolution before the delta rule, with silu.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/conv.cpp"
// clang-format off: Highway's order.
#include "backend/cpu/simd_targets.h"
#include "hwy/foreach_target.h"
#include "backend/cpu/math-inl.h"
#include "backend/cpu/stored-inl.h"
// clang-format on
#include <algorithm>

#include "backend/cpu/ops.h"

HWY_BEFORE_NAMESPACE();
namespace signet::backend::cpu {
namespace HWY_NAMESPACE {
namespace {

constexpr int64_t kMaxTaps = 16;
// Channels of one task: weights and state, stored by channel, are turned by tap
// in blocks of this many, so that the rows can run over vectors of channels.
constexpr int64_t kChannels = 256;

// One block of channels: its weights, and the columns that come before a row.
class ChannelBlock {
 public:
  ChannelBlock(const ConvArgs& args, int64_t first)
      : args_(args),
        taps_(args.weight.cols),
        channels_(args.weight.rows),
        first_(first),
        width_(std::min(kChannels, channels_ - first)) {
    WithStored(args.weight.dtype, args.weight.data, [&](const auto* weight) {
      for (int64_t c = 0; c < width_; ++c) {
        for (int64_t j = 0; j < taps_; ++j) {
          weight_[j][c] = LoadStored1(weight + (first + c) * taps_ + j);
        }
      }
    });
  }

  // Runs rows [begin, end), which are consecutive in one sequence.
  void Run(int64_t begin, int64_t end) {
    float* state = args_.state +
                   (args_.rows.slot[begin] * channels_ + first_) * (taps_ - 1);
    LoadState(state, args_.rows.position[begin] == 0);
    for (int64_t row = begin; row < end; ++row) {
      // column[j] is the input taps - 1 - j rows ago.
      const float* column[kMaxTaps];
      for (int64_t j = 0; j < taps_; ++j) column[j] = Column(begin, row, j);
      float* out = args_.out + row * channels_ + first_;
      const hn::CappedTag<float, 16> d;
      ForVectors(static_cast<size_t>(width_),
                 [&](size_t, const auto& load, const auto& store) {
                   auto sum = hn::Zero(d);
                   for (int64_t j = 0; j < taps_; ++j) {
                     sum = hn::MulAdd(load(weight_[j]), load(column[j]), sum);
                   }
                   store(Silu(d, sum), out);
                 });
    }
    StoreState(state, begin, end);
  }

 private:
  // The input `taps - 1 - j` rows before `row`, from the call or the state.
  const float* Column(int64_t begin, int64_t row, int64_t j) const {
    const int64_t from = row - (taps_ - 1) + j;
    return from >= begin ? args_.u + from * channels_ + first_
                         : history_[from - begin + taps_ - 1];
  }

  void LoadState(const float* state, bool at_start) {
    for (int64_t c = 0; c < width_; ++c) {
      for (int64_t j = 0; j < taps_ - 1; ++j) {
        history_[j][c] = at_start ? 0.0f : state[c * (taps_ - 1) + j];
      }
    }
  }

  void StoreState(float* state, int64_t begin, int64_t end) const {
    for (int64_t j = 0; j < taps_ - 1; ++j) {
      const float* column = Column(begin, end, j);
      for (int64_t c = 0; c < width_; ++c) {
        state[c * (taps_ - 1) + j] = column[c];
      }
    }
  }

  const ConvArgs& args_;
  const int64_t taps_;
  const int64_t channels_;
  const int64_t first_;
  const int64_t width_;
  float weight_[kMaxTaps][kChannels];
  float history_[kMaxTaps - 1][kChannels];  // oldest first
};

void ConvAll(ThreadPool& pool, const ConvArgs& args) {
  SIGNET_CHECK(args.weight.cols >= 2 && args.weight.cols <= kMaxTaps);
  const int64_t live = *args.rows.live;
  if (live == 0) return;
  const int64_t blocks = (args.weight.rows + kChannels - 1) / kChannels;
  pool.ParallelFor(blocks, [&](int64_t task, int) {
    ChannelBlock block(args, task * kChannels);
    if (args.form == RowForm::kOneSequence) {
      block.Run(0, live);
    } else {
      for (int64_t row = 0; row < live; ++row) block.Run(row, row + 1);
    }
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace signet::backend::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace signet::backend::cpu {

HWY_EXPORT(ConvAll);

void Conv(ThreadPool& pool, const ConvArgs& args) {
  HWY_DYNAMIC_DISPATCH(ConvAll)(pool, args);
}

}  // namespace signet::backend::cpu
#endif  // HWY_ONCE
