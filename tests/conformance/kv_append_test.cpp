// The KV append of the GPU leaves the bytes of the CPU's in the whole cache.

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "backend/cpu/cpu_kernels.h"
#include "backend/kernel_bench.h"
#include "tests/conformance/attention_problem.h"

namespace signet::backend::gpu {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)
using backend::testing::KernelBench;
using tensor::DType;

class KvAppendTest : public GpuKernelTest {};

TEST_F(KvAppendTest, LeavesTheBytesOfTheCpu) {
  Random random(1);
  struct Sizes {
    int64_t page_size;
    int64_t kv_heads;
    int64_t dim;
  };
  for (const Sizes& sizes : {Sizes{64, 2, 256}, Sizes{5, 1, 7}, Sizes{1, 3, 4},
                             Sizes{16, 2, 8}, Sizes{48, 4, 512}}) {
    for (const DType dtype : {DType::kBF16, DType::kF32}) {
      for (const bool one : {true, false}) {
        SCOPED_TRACE("seed 1, dim " + std::to_string(sizes.dim));
        PagedCache cache(random, {dtype, 3, 130, sizes.page_size,
                                  sizes.kv_heads, sizes.dim});
        TestRows rows = one ? TestRows::One(97, 1, 33, 100)
                            : TestRows({2, 0, 1}, {129, 0, 64}, 5);
        const std::vector<float> k =
            RandomFloats(random, rows.capacity() * cache.width(), 3.0f);
        const std::vector<float> v =
            RandomFloats(random, rows.capacity() * cache.width(), 3.0f);
        DeviceArray<float> device_k(k);
        DeviceArray<float> device_v(v);
        kernels().KvAppend(
            KernelBench::Launch(),
            {rows.device(), device_k.data(), device_v.data(), cache.device()});
        Finish();
        cpu::ThreadPool pool(2);
        cpu::MakeCpuKernels(&pool)->KvAppend(
            KernelBench::Launch(),
            {rows.host(), k.data(), v.data(), cache.host()});
        EXPECT_EQ(cache.DeviceK(), cache.host_k());
        EXPECT_EQ(cache.DeviceV(), cache.host_v());
        EXPECT_TRUE(cache.CanariesIntact());
      }
    }
  }
}

}  // namespace
}  // namespace signet::backend::gpu
