// Fused launches of shapes of many rows: each leaves the bits of its steps in
// the buffers that are read afterwards, and writes nothing else.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/kernel_bench.h"
#include "tests/conformance/delta_testing.h"
#include "tests/conformance/expert_testing.h"
#include "tests/conformance/grouped_testing.h"
#include "tests/conformance/product_testing.h"

namespace signet::backend::gpu {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

struct Extent {
  int64_t capacity;
  int64_t live;
  int64_t width;
};

const Extent kExtents[] = {{64, 64, 2048}, {64, 33, 2048},  {300, 257, 2048},
                           {9, 9, 44},     {12, 5, 2056},   {3, 2, 7},
                           {2, 0, 32},     {1, 1, 1},       {17, 16, 5120},
                           {5, 5, 17408},  {4097, 4001, 22}};

std::string NameOf(const Extent& e) {
  return std::to_string(e.live) + " of " + std::to_string(e.capacity) +
         " rows of " + std::to_string(e.width);
}

constexpr DType kWeightTypes[] = {DType::kF32, DType::kBF16, DType::kF16};

class FusedRoundsGpuTest : public ProductTest {
 protected:
  static LaunchKey Key() { return KernelBench::Launch(); }
  /// Live values on the device, NaN after them; `shift` elements past an
  /// aligned address.
  struct Input {
    Input(std::span<const float> live_values, int64_t count, int64_t shift)
        : shift(shift), array(count + shift) {
      std::vector<float> all(static_cast<size_t>(shift), 0.0f);
      all.insert(all.end(), live_values.begin(), live_values.end());
      array.Set(all);
    }
    float* data() { return array.data() + shift; }
    int64_t shift;
    DeviceArray<float> array;
  };
  static NormRoundArgs NormRoundOf(DeviceRows& rows, const float* x,
                                   const VectorView& weight,
                                   DeviceArray<float>& out,
                                   DeviceArray<uint16_t>& rounded) {
    const int64_t width = weight.size;
    return {.norm = {.rows = rows.view(),
                     .x = x,
                     .weight = weight,
                     .width = width,
                     .out = out.data()},
            .round = {.rows = rows.view(),
                      .width = width,
                      .x = out.data(),
                      .out = rounded.data()}};
  }
};

TEST_F(FusedRoundsGpuTest, NormRound) {
  Numbers numbers(601);
  for (const Extent& e : kExtents) {
    for (const DType dtype : kWeightTypes) {
      for (const int64_t shift : {0, 1}) {
        SCOPED_TRACE(NameOf(e) + (shift == 0 ? "" : ", unaligned"));
        const int64_t live = e.live * e.width;
        const int64_t count = e.capacity * e.width;
        Input x(UniformValues(numbers, live, 3.0f), count, shift);
        Stored weight(numbers, dtype, e.width);
        DeviceRows rows(e.live, e.capacity);
        DeviceArray<float> normed(count), kept(count), dropped(count);
        DeviceArray<uint16_t> want(count), got(count), alone(count);
        const auto args = [&](DeviceArray<float>& out,
                              DeviceArray<uint16_t>& rounded) {
          return NormRoundOf(rows, x.data(), {weight.data(), dtype, e.width},
                             out, rounded);
        };
        const NormRoundArgs steps = args(normed, want);
        kernels().Norm(Key(), steps.norm);
        kernels().Round(Key(), steps.round);
        NormRoundArgs fused = args(kept, got);
        fused.keep_normed = true;
        kernels().NormRound(Key(), fused);
        kernels().NormRound(Key(), args(dropped, alone));
        Finish();
        const std::vector<uint16_t> bits = Written(want, live);
        EXPECT_TRUE(SameBits(Written(got, live), bits));
        EXPECT_TRUE(SameBits(Written(alone, live), bits));
        EXPECT_TRUE(SameBits(Written(kept, live), Written(normed, live)));
        Written(dropped, 0);
      }
    }
  }
}

TEST_F(FusedRoundsGpuTest, AddNormRound) {
  Numbers numbers(606);
  for (const Extent& e : kExtents) {
    for (const DType dtype : kWeightTypes) {
      for (const std::string unaligned : {"nothing", "residual", "addend"}) {
        SCOPED_TRACE(NameOf(e) + ", unaligned: " + unaligned);
        const int64_t shift = unaligned == "residual" ? 1 : 0;
        const int64_t live = e.live * e.width;
        const int64_t count = e.capacity * e.width;
        const std::vector<float> values = UniformValues(numbers, live, 3.0f);
        Input residual(values, count, shift), in_place(values, count, shift);
        Input addend(UniformValues(numbers, live, 3.0f), count,
                     unaligned == "addend" ? 1 : 0);
        Stored weight(numbers, dtype, e.width);
        DeviceRows rows(e.live, e.capacity);
        DeviceArray<float> sum(count), fused_sum(count);
        DeviceArray<float> normed(count), kept(count), dropped(count);
        DeviceArray<uint16_t> want(count), got(count), alone(count);
        const auto args = [&](const float* from, float* to,
                              DeviceArray<float>& out,
                              DeviceArray<uint16_t>& rounded) {
          const NormRoundArgs end = NormRoundOf(
              rows, to, {weight.data(), dtype, e.width}, out, rounded);
          return AddNormRoundArgs{
              .add = {rows.view(), e.width, from, addend.data(), to},
              .norm = end.norm,
              .round = end.round};
        };
        const AddNormRoundArgs steps =
            args(residual.data(), sum.data(), normed, want);
        kernels().ResidualAdd(Key(), steps.add);
        kernels().Norm(Key(), steps.norm);
        kernels().Round(Key(), steps.round);
        AddNormRoundArgs fused =
            args(residual.data(), fused_sum.data(), kept, got);
        fused.keep_normed = true;
        kernels().AddNormRound(Key(), fused);
        kernels().AddNormRound(
            Key(), args(in_place.data(), in_place.data(), dropped, alone));
        Finish();
        const std::vector<float> sums = Written(sum, live);
        const std::vector<uint16_t> bits = Written(want, live);
        EXPECT_TRUE(SameBits(Written(fused_sum, live), sums));
        std::vector<float> replaced = Written(in_place.array, shift + live);
        replaced.erase(replaced.begin(), replaced.begin() + shift);
        EXPECT_TRUE(SameBits(replaced, sums));
        EXPECT_TRUE(SameBits(Written(got, live), bits));
        EXPECT_TRUE(SameBits(Written(alone, live), bits));
        EXPECT_TRUE(SameBits(Written(kept, live), Written(normed, live)));
        Written(dropped, 0);
      }
    }
  }
}

TEST_F(FusedRoundsGpuTest, GatedNormRound) {
  struct Heads {
    int64_t capacity, live, heads, head_dim;
  };
  Numbers numbers(602);
  for (const Heads& h :
       {Heads{64, 64, 32, 128}, Heads{64, 9, 32, 128}, Heads{520, 513, 5, 128},
        Heads{9, 8, 3, 22}, Heads{2, 0, 4, 128}, Heads{12, 11, 7, 130},
        Heads{1, 1, 1, 1}}) {
    for (const DType dtype : kWeightTypes) {
      SCOPED_TRACE(std::to_string(h.live) + " rows of " +
                   std::to_string(h.heads) + " heads of " +
                   std::to_string(h.head_dim));
      const int64_t width = h.heads * h.head_dim;
      const int64_t live = h.live * width;
      const int64_t count = h.capacity * width;
      Input o(UniformValues(numbers, live, 2.0f), count, 0);
      Input z(UniformValues(numbers, live, 8.0f), count, 0);
      Stored weight(numbers, dtype, h.head_dim);
      DeviceRows rows(h.live, h.capacity);
      DeviceArray<float> normed(count), dropped(count);
      DeviceArray<uint16_t> want(count), got(count);
      const auto args = [&](DeviceArray<float>& out,
                            DeviceArray<uint16_t>& rounded) {
        return GatedNormRoundArgs{
            .norm = {.rows = rows.view(),
                     .heads = h.heads,
                     .head_dim = h.head_dim,
                     .o = o.data(),
                     .z = z.data(),
                     .weight = {weight.data(), dtype, h.head_dim},
                     .out = out.data()},
            .round = {.rows = rows.view(),
                      .width = width,
                      .x = out.data(),
                      .out = rounded.data()}};
      };
      const GatedNormRoundArgs steps = args(normed, want);
      kernels().GatedNorm(Key(), steps.norm);
      kernels().Round(Key(), steps.round);
      kernels().GatedNormRound(Key(), args(dropped, got));
      Finish();
      EXPECT_TRUE(SameBits(Written(got, live), Written(want, live)));
      Written(dropped, 0);
    }
  }
}

TEST_F(FusedRoundsGpuTest, UnscatterActivation) {
  Numbers numbers(603);
  constexpr int64_t kExperts = 24;
  std::vector<Routing> routings = Routings(numbers, kExperts);
  routings.push_back(RandomRouting(numbers, 64, 8, kExperts));
  for (const Routing& routing : routings) {
    for (const int64_t width : {512, 44, 7, 600}) {
      for (const bool rounded : {true, false}) {
        for (const int64_t first : {0, 8}) {  // local experts from there on
          SCOPED_TRACE(routing.name + ", rows of " + std::to_string(width));
          const int64_t capacity = routing.live + 3;
          const HostGrouped grouped(cpu(), routing, capacity, 16,
                                    OwnedRange(kExperts, first, kExperts));
          const int64_t slots = capacity * routing.top_k;
          const int64_t count = slots * width;
          DeviceArray<int32_t> sorted_slot(grouped.sorted_slot);
          DeviceArray<float> y(
              UniformValues(numbers, grouped.max_rows * 2 * width, 9.0f));
          DeviceRows rows(routing.live, capacity);
          DeviceArray<float> gate(count), up(count), unused(count);
          DeviceArray<float> want(count), got(count);
          DeviceArray<uint16_t> want_bits(count), got_bits(count);
          const auto args = [&](float* g, float* u, DeviceArray<float>& out,
                                DeviceArray<uint16_t>& bits) {
            return UnscatterActivationArgs{
                .unscatter = {.rows = rows.view(),
                              .max_rows = grouped.max_rows,
                              .width = width,
                              .sorted_slot = sorted_slot.data(),
                              .y = y.data(),
                              .gate = g,
                              .up = u},
                .activation = {.rows = rows.view(),
                               .multiple = routing.top_k,
                               .width = width,
                               .gate = g,
                               .up = u,
                               .out = rounded ? nullptr : out.data(),
                               .rounded = rounded ? bits.data() : nullptr}};
          };
          const auto steps = args(gate.data(), up.data(), want, want_bits);
          kernels().Unscatter(Key(), steps.unscatter);
          kernels().Activation(Key(), steps.activation);
          kernels().UnscatterActivation(
              Key(), args(unused.data(), unused.data(), got, got_bits));
          Finish();
          Written(unused, 0);
          // Of slots that are not here nothing is read, and fused nothing is
          // written.
          const auto compare = [&](const auto& want_all, const auto& got_all,
                                   const auto& poison) {
            for (int64_t s = 0; s < slots; ++s) {
              const auto at = static_cast<size_t>(s * width);
              const auto size = static_cast<size_t>(width);
              const bool here =
                  grouped.inverse_perm[static_cast<size_t>(s)] >= 0;
              const auto& source = here ? want_all : poison;
              EXPECT_EQ(std::memcmp(&got_all[at], &source[at],
                                    size * sizeof(got_all[0])),
                        0)
                  << "slot " << s;
            }
          };
          EXPECT_TRUE(got.CanariesIntact());
          EXPECT_TRUE(got_bits.CanariesIntact());
          compare(want.Get(), got.Get(), DeviceArray<float>(count).Get());
          compare(want_bits.Get(), got_bits.Get(),
                  DeviceArray<uint16_t>(count).Get());
        }
      }
    }
  }
}

struct FoldCase {
  int64_t capacity, live, top_k, num_experts;
  int64_t lanes, first_lane, num_lanes;
  int64_t width;
};

const FoldCase kFolds[] = {
    {64, 64, 8, 256, 8, 0, 8, 2048},   {64, 41, 8, 256, 8, 0, 8, 2048},
    {140, 135, 8, 256, 8, 0, 8, 2048}, {9, 9, 3, 22, 2, 0, 2, 44},
    {12, 11, 9, 16, 8, 4, 4, 33},      {10, 10, 2, 8, 8, 3, 1, 20},
    {6, 6, 20, 32, 8, 0, 8, 7},        {1, 1, 1, 7, 1, 0, 1, 5},
    {2, 0, 2, 8, 8, 0, 8, 16},         {4097, 4001, 4, 64, 8, 0, 8, 40},
    {70, 65, 8, 128, 8, 0, 8, 5120},   {300, 257, 8, 256, 8, 0, 8, 2048},
    {256, 256, 9, 16, 8, 4, 4, 4104}};

// CombineTail, and CombineNorm with weights of a type by turns.
TEST_F(FusedRoundsGpuTest, CombineTailAndNorm) {
  Numbers numbers(604);
  size_t turn = 0;
  for (const FoldCase& c : kFolds) {
    for (const bool grouped : {true, false}) {
      for (const int64_t shift : {0, 1}) {
        SCOPED_TRACE(std::to_string(c.live) + " of " +
                     std::to_string(c.capacity) + " rows of " +
                     std::to_string(c.width) +
                     (grouped ? ", grouped" : ", indexed"));
        const int64_t per_lane = c.num_experts / c.lanes;
        const std::vector<int32_t> map =
            SomeHere(c.num_experts, c.first_lane * per_lane,
                     (c.first_lane + c.num_lanes) * per_lane);
        const std::vector<int32_t> ids =
            DrawnIds(numbers, c.live, c.top_k,
                     SpreadIds(c.num_experts, c.num_experts), true);
        const int64_t slots = c.capacity * c.top_k;
        const int64_t num_rows = grouped ? slots + 5 : slots;
        std::vector<int32_t> perm;
        for (int64_t s = 0; s < slots; ++s) {
          const bool here =
              s < c.live * c.top_k && ids[static_cast<size_t>(s)] >= 0 &&
              map[static_cast<size_t>(ids[static_cast<size_t>(s)])] >= 0;
          perm.push_back(here && s % 11 != 5
                             ? static_cast<int32_t>(num_rows - 1 - s)
                             : -1);
        }
        const int64_t live = c.live * c.width;
        const int64_t count = c.capacity * c.width;
        DeviceRows rows(c.live, c.capacity);
        DeviceArray<int32_t> device_ids(slots);
        device_ids.Set(ids);
        DeviceArray<int32_t> device_perm(perm);
        DeviceArray<int32_t> device_map(map);
        DeviceArray<float> weights(UniformValues(numbers, slots));
        DeviceArray<float> d(UniformValues(numbers, num_rows * c.width));
        Input gate(UniformValues(numbers, c.live, 6.0f), c.capacity, 0);
        Input x(UniformValues(numbers, live), count, 0);
        Input residual(UniformValues(numbers, live, 4.0f), count, shift);
        DeviceArray<float> partial(count), reduced(count), fed(count);
        DeviceArray<float> want(count), got(count), unused(count);
        const auto args = [&](float* p, float* r, float* f,
                              DeviceArray<float>& out) {
          return CombineTailArgs{
              .combine = {.rows = rows.view(),
                          .top_k = c.top_k,
                          .num_experts = c.num_experts,
                          .lanes = c.lanes,
                          .first_lane = c.first_lane,
                          .num_lanes = c.num_lanes,
                          .width = c.width,
                          .ids = device_ids.data(),
                          .weights = weights.data(),
                          .d = d.data(),
                          .inverse_perm =
                              grouped ? device_perm.data() : nullptr,
                          .global_to_local = device_map.data(),
                          .out = p},
              .reduce = {rows.view(), c.width, p, r},
              .gated = {rows.view(), c.width, r, gate.data(), x.data(), f},
              .add = {rows.view(), c.width, residual.data(), f, out.data()}};
        };
        const CombineTailArgs steps =
            args(partial.data(), reduced.data(), fed.data(), want);
        kernels().Combine(Key(), steps.combine);
        kernels().IdentityReduce(Key(), steps.reduce);
        kernels().GatedAdd(Key(), steps.gated);
        kernels().ResidualAdd(Key(), steps.add);
        kernels().CombineTail(
            Key(), args(unused.data(), unused.data(), unused.data(), got));
        Finish();
        EXPECT_TRUE(SameBits(Written(got, live), Written(want, live)));

        const DType dtype = kWeightTypes[turn++ % 3];
        Stored norm_weight(numbers, dtype, c.width);
        DeviceArray<float> normed(count), kept(count);
        DeviceArray<float> sum(count), other_sum(count);
        DeviceArray<uint16_t> rounded(count), with(count), without(count);
        const auto norm = [&](DeviceArray<float>& from, DeviceArray<float>& to,
                              DeviceArray<uint16_t>& bits, bool keep) {
          NormRoundArgs norm_args =
              NormRoundOf(rows, from.data(),
                          {norm_weight.data(), dtype, c.width}, to, bits);
          norm_args.keep_normed = keep;
          return norm_args;
        };
        kernels().NormRound(Key(), norm(want, normed, rounded, true));
        kernels().CombineNorm(Key(), {.tail = args(unused.data(), unused.data(),
                                                   unused.data(), sum),
                                      .norm = norm(sum, kept, with, true)});
        kernels().CombineNorm(
            Key(), {.tail = args(unused.data(), unused.data(), unused.data(),
                                 other_sum),
                    .norm = norm(other_sum, unused, without, false)});
        Finish();
        EXPECT_TRUE(SameBits(Written(sum, live), Written(want, live)));
        EXPECT_TRUE(SameBits(Written(other_sum, live), Written(want, live)));
        EXPECT_TRUE(SameBits(Written(kept, live), Written(normed, live)));
        EXPECT_TRUE(SameBits(Written(with, live), Written(rounded, live)));
        EXPECT_TRUE(SameBits(Written(without, live), Written(rounded, live)));
        Written(unused, 0);
      }
    }
  }
}

// Conv to the rounded output of the mixer, of whole heads and of others.
TEST_F(FusedRoundsGpuTest, DeltaMixRounded) {
  Random random(605);
  struct Shape {
    int64_t key_heads, value_heads, dim, taps;
  };
  for (const Shape& s :
       {Shape{16, 32, 128, 4}, Shape{2, 4, 128, 4}, Shape{1, 3, 128, 4},
        Shape{2, 4, 128, 3}, Shape{1, 2, 44, 4}}) {
    for (const DType dtype : kWeightTypes) {
      SCOPED_TRACE(std::to_string(s.value_heads) + " heads of " +
                   std::to_string(s.dim));
      const int64_t channels = (2 * s.key_heads + s.value_heads) * s.dim;
      const int64_t width = s.value_heads * s.dim;
      constexpr int64_t kSlots = 14;
      CallRows rows({3, 0, 4, 1, 9, 8, 13, 12, 11, 5},
                    {0, 9, 1, 2, 3, 4, 5, 6, 0, 8}, 12);
      Weights conv_weight(random, dtype, channels, s.taps);
      Weights a_log(random, dtype, 1, s.value_heads);
      Weights dt_bias(random, dtype, 1, s.value_heads);
      Weights norm_weight(random, dtype, 1, s.dim);
      const std::vector<float> conv_start =
          RandomStates(random, kSlots, channels * (s.taps - 1), rows);
      const std::vector<float> delta_start =
          RandomStates(random, kSlots, s.value_heads * s.dim * s.dim, rows);
      const auto input = [&](int64_t columns) {
        return std::make_unique<Input>(
            RandomFloats(random, rows.live() * columns),
            rows.capacity() * columns, 0);
      };
      const auto u = input(channels), z = input(width);
      const auto a = input(s.value_heads), b = input(s.value_heads);
      DeviceArray<float> qkv(rows.capacity() * channels);
      DeviceArray<float> o(rows.capacity() * width);
      DeviceArray<float> normed(rows.capacity() * width);
      const auto run = [&](bool fused, DeviceArray<uint16_t>& out,
                           DeviceArray<float>& conv_states,
                           DeviceArray<float>& delta_states) {
        const DeltaMixArgs args = {
            .conv = {.rows = rows.device(),
                     .u = u->data(),
                     .weight = conv_weight.device(),
                     .state = conv_states.data(),
                     .out = qkv.data()},
            .delta = {.rows = rows.device(),
                      .key_heads = s.key_heads,
                      .value_heads = s.value_heads,
                      .key_dim = s.dim,
                      .value_dim = s.dim,
                      .qkv = qkv.data(),
                      .b = b->data(),
                      .a = a->data(),
                      .a_log = a_log.device_vector(),
                      .dt_bias = dt_bias.device_vector(),
                      .state = delta_states.data(),
                      .out = o.data()},
            .norm = {.rows = rows.device(),
                     .heads = s.value_heads,
                     .head_dim = s.dim,
                     .o = o.data(),
                     .z = z->data(),
                     .weight = norm_weight.device_vector(),
                     .out = normed.data()},
            .rounded = true,
            .round = {.rows = rows.device(),
                      .width = width,
                      .x = normed.data(),
                      .out = out.data()}};
        if (fused) return kernels().DeltaMix(Key(), args);
        kernels().Conv(Key(), args.conv);
        kernels().DeltaRule(Key(), args.delta);
        kernels().GatedNorm(Key(), args.norm);
        kernels().Round(Key(), args.round);
      };
      DeviceArray<uint16_t> want(rows.capacity() * width);
      DeviceArray<uint16_t> got(rows.capacity() * width);
      DeviceArray<float> conv_apart(conv_start), conv_fused(conv_start);
      DeviceArray<float> delta_apart(delta_start), delta_fused(delta_start);
      run(false, want, conv_apart, delta_apart);
      run(true, got, conv_fused, delta_fused);
      Finish();
      EXPECT_TRUE(SameBits(Written(got, rows.live() * width),
                           Written(want, rows.live() * width)));
      EXPECT_TRUE(SameBits(conv_fused.Get(), conv_apart.Get()));
      EXPECT_TRUE(SameBits(delta_fused.Get(), delta_apart.Get()));
    }
  }
}

}  // namespace
}  // namespace signet::backend::gpu
