#include "backend/gpu/attention_config.h"

#include <gtest/gtest.h>

namespace signet::backend::gpu {
namespace {

AttentionDesc Flagship(RowForm form, int64_t capacity) {
  return {.form = form,
          .capacity = capacity,
          .heads = 16,
          .kv_heads = 2,
          .head_dim = 256,
          .page_size = 64,
          .context = 32768,
          .kv_dtype = tensor::DType::kBF16,
          .aligned = true,
          .scratch_bytes = (64 << 20) - (4 << 10)};
}

TEST(AttentionConfigTest, FormsAndDtypesChooseTheKernel) {
  const auto kernel = [](const AttentionDesc& desc) {
    return ConfigureAttention(desc).kernel;
  };
  AttentionDesc decode = Flagship(RowForm::kSequenceEach, 64);
  AttentionDesc prefill = Flagship(RowForm::kOneSequence, 8192);
  EXPECT_EQ(kernel(decode), AttentionKernel::kDecode);
  EXPECT_EQ(kernel(prefill), AttentionKernel::kWarpgroupFlash);
  EXPECT_EQ(kernel(Flagship(RowForm::kOneSequence, 8)),
            AttentionKernel::kDecode);
  for (AttentionDesc* desc : {&decode, &prefill}) {
    AttentionDesc changed = *desc;
    changed.kv_dtype = tensor::DType::kF32;
    EXPECT_EQ(kernel(changed), AttentionKernel::kPlain);
    changed = *desc;
    changed.head_dim = 96;
    EXPECT_EQ(kernel(changed), AttentionKernel::kPlain);
    changed = *desc;
    changed.aligned = false;
    EXPECT_EQ(kernel(changed), AttentionKernel::kPlain);
  }
  // Any pages and groups up to a block's rows.
  prefill.page_size = 40;
  prefill.head_dim = 128;
  prefill.heads = 256;
  EXPECT_EQ(kernel(prefill), AttentionKernel::kWarpgroupFlash);
  prefill.heads = 258;
  EXPECT_EQ(kernel(prefill), AttentionKernel::kPlain);
  prefill.heads = 16;
  prefill.head_dim = 64;
  EXPECT_EQ(kernel(prefill), AttentionKernel::kFlash);
  decode.page_size = 40;
  EXPECT_EQ(kernel(decode), AttentionKernel::kPlain);
  decode.page_size = 48;
  EXPECT_EQ(kernel(decode), AttentionKernel::kDecode);
  // Positions that the reciprocal of a page size does not divide exactly.
  decode.context = int64_t{1} << 27;
  EXPECT_EQ(kernel(decode), AttentionKernel::kPlain);
  decode.page_size = 64;
  EXPECT_EQ(kernel(decode), AttentionKernel::kDecode);
}

TEST(AttentionConfigTest, HeadTilesCoverAGroup) {
  AttentionDesc desc = Flagship(RowForm::kSequenceEach, 1);
  EXPECT_EQ(ConfigureAttention(desc).head_tiles, 1);
  desc.heads = 18;
  EXPECT_EQ(ConfigureAttention(desc).head_tiles, 2);
  desc.heads = 2;
  EXPECT_EQ(ConfigureAttention(desc).head_tiles, 1);
}

TEST(AttentionConfigTest, SplitSumsFitTheScratch) {
  for (const int64_t capacity : {1, 8, 64, 256, 4097, 60000}) {
    for (const int64_t heads : {2, 16, 64}) {
      AttentionDesc desc = Flagship(RowForm::kSequenceEach, capacity);
      desc.heads = heads;
      const AttentionConfig config = ConfigureAttention(desc);
      const int64_t splits = config.rule.max_splits;
      ASSERT_GE(splits, 1);
      if (splits == 1) continue;
      EXPECT_LE(SplitScratchOf(capacity, heads, desc.head_dim, splits).bytes,
                desc.scratch_bytes);
    }
  }
}

TEST(AttentionConfigTest, OneRowFillsTheDevice) {
  const AttentionConfig config =
      ConfigureAttention(Flagship(RowForm::kSequenceEach, 1));
  EXPECT_EQ(config.rule.min_tokens, 64);
  EXPECT_EQ(config.rule.max_splits, 128);
}

TEST(AttentionConfigTest, AShortContextIsOneSplit) {
  AttentionDesc desc = Flagship(RowForm::kSequenceEach, 1);
  desc.context = 64;
  EXPECT_EQ(ConfigureAttention(desc).rule.max_splits, 1);
}

TEST(AttentionConfigTest, SplitsCoverARow) {
  for (const int32_t min_tokens : {0, 64, 256}) {
    for (const int32_t max_splits : {1, 3, 16, 128}) {
      const SplitRule rule = {.min_tokens = min_tokens,
                              .max_splits = max_splits};
      for (int32_t position = 0; position < 9000; ++position) {
        const RowSplits splits = SplitsOf(rule, position);
        ASSERT_EQ(splits.tokens % kSplitGranule, 0);
        ASSERT_GE(splits.count, 1);
        ASSERT_LE(splits.count, max_splits);
        ASSERT_GT(splits.count * splits.tokens, position);
        ASSERT_LE((splits.count - 1) * splits.tokens, position);
      }
    }
  }
}

}  // namespace
}  // namespace signet::backend::gpu
