#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "tests/conformance/delta_testing.h"

namespace signet::backend::gpu {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

class GpuGatedNormTest : public GpuKernelTest {
 protected:
  std::vector<float> Run(CallRows& rows, int64_t heads, int64_t head_dim,
                         const std::vector<float>& o,
                         const std::vector<float>& z, Weights& weight) {
    const int64_t width = heads * head_dim;
    DeviceArray<float> o_in(rows.capacity() * width);
    DeviceArray<float> z_in(rows.capacity() * width);
    DeviceArray<float> out(rows.capacity() * width);
    o_in.Set(o);
    z_in.Set(z);
    kernels().GatedNorm(KernelBench::Launch(),
                        {.rows = rows.device(),
                         .heads = heads,
                         .head_dim = head_dim,
                         .o = o_in.data(),
                         .z = z_in.data(),
                         .weight = weight.device_vector(),
                         .out = out.data()});
    Finish();
    return Written(out, rows.live() * width);
  }

  Random random_{2};
  Reference reference_;
};

// The sum of squares runs in another order than the CPU's, a few roundings of
// 6e-8; all else is the same arithmetic.
TEST_F(GpuGatedNormTest, AgreesWithTheCpu) {
  struct Shape {
    int64_t heads;
    int64_t head_dim;
    int64_t live;
    int64_t capacity;
  };
  for (const Shape& s :
       {Shape{1, 1, 1, 1}, Shape{3, 8, 2, 4}, Shape{5, 22, 3, 3},
        Shape{1, 44, 1, 2}, Shape{32, 128, 1, 1}, Shape{48, 128, 9, 16},
        Shape{7, 130, 4, 5}, Shape{2, 512, 3, 3}}) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      SCOPED_TRACE(::testing::Message() << s.heads << " " << s.head_dim);
      const int64_t width = s.heads * s.head_dim;
      const auto rows = CallRows::One(s.live, 0, 0, s.capacity);
      Weights weight(random_, dtype, 1, s.head_dim);
      const std::vector<float> o = RandomFloats(random_, s.live * width);
      std::vector<float> z = RandomFloats(random_, s.live * width);
      for (float& value : z) value *= 8;
      std::vector<float> want(o.size());
      reference_.kernels().GatedNorm(KernelBench::Launch(),
                                     {.rows = rows->host(),
                                      .heads = s.heads,
                                      .head_dim = s.head_dim,
                                      .o = o.data(),
                                      .z = z.data(),
                                      .weight = weight.host_vector(),
                                      .out = want.data()});
      const std::vector<float> got =
          Run(*rows, s.heads, s.head_dim, o, z, weight);
      EXPECT_LT(RelativeError(got, want), 1e-6);
      EXPECT_TRUE(SameBits(Run(*rows, s.heads, s.head_dim, o, z, weight), got));
      // The last row alone, in a call of another size.
      const auto alone = CallRows::One(1, 0, 0, s.capacity + 3);
      const std::vector<float> last_o(o.end() - width, o.end());
      const std::vector<float> last_z(z.end() - width, z.end());
      EXPECT_TRUE(
          SameBits(Run(*alone, s.heads, s.head_dim, last_o, last_z, weight),
                   std::vector<float>(got.end() - width, got.end())));
    }
  }
}

}  // namespace
}  // namespace signet::backend::gpu
