// The ceilings of the CPU: all threads sum large regions of memory, then
// multiply and add in registers.

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <system_error>
#include <thread>
#include <vector>

#include "backend/cpu/simd_targets.h"
#include "base/check.h"
#include "evidence/bench_ceilings.h"
#include "evidence/bench_spread.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "evidence/bench_cpu_ceilings.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file once a target.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace signet::evidence {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// Enough of both to hide the latency of one.
constexpr size_t kSums = 8;
constexpr size_t kProducts = 12;

// Integers: no value is slow to add.
uint32_t Sum(const uint32_t* values, size_t count) {
  const hn::ScalableTag<uint32_t> d;
  const size_t lanes = hn::Lanes(d);
  decltype(hn::Zero(d)) sums[kSums];
  for (auto& sum : sums) sum = hn::Zero(d);
  for (size_t i = 0; i + kSums * lanes <= count; i += kSums * lanes) {
    for (size_t s = 0; s < kSums; ++s) {
      sums[s] = hn::Add(sums[s], hn::LoadU(d, values + i + s * lanes));
    }
  }
  for (size_t s = 1; s < kSums; ++s) sums[0] = hn::Add(sums[0], sums[s]);
  return hn::GetLane(hn::SumOfLanes(d, sums[0]));
}

// The operations done are added to `operations`.
float Multiply(size_t rounds, double& operations) {
  const hn::ScalableTag<float> d;
  const auto scale = hn::Set(d, 0.999f);
  const auto addend = hn::Set(d, 0.001f);
  decltype(hn::Zero(d)) products[kProducts];
  for (size_t p = 0; p < kProducts; ++p) {
    products[p] = hn::Iota(d, static_cast<float>(p));
  }
  for (size_t i = 0; i < rounds; ++i) {
    for (auto& product : products) {
      product = hn::MulAdd(product, scale, addend);
    }
  }
  for (size_t p = 1; p < kProducts; ++p) {
    products[0] = hn::Add(products[0], products[p]);
  }
  operations += static_cast<double>(2 * rounds * kProducts * hn::Lanes(d));
  return hn::GetLane(hn::SumOfLanes(d, products[0]));
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace signet::evidence
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace signet::evidence {
namespace {

HWY_EXPORT(Sum);
HWY_EXPORT(Multiply);

constexpr int kPasses = 5;  // and one before them
constexpr size_t kMultiplyRounds = size_t{1} << 21;

// The median time in which all of `threads` threads do `work(thread)`.
Result<double> MedianSeconds(int threads,
                             const std::function<void(int)>& work) {
  using Clock = std::chrono::steady_clock;
  std::barrier gate(threads);
  const auto help = [&](int thread) {
    for (int pass = 0; pass <= kPasses; ++pass) {
      gate.arrive_and_wait();
      work(thread);
      gate.arrive_and_wait();
    }
  };
  std::vector<std::thread> helpers;
  try {
    for (int t = 1; t < threads; ++t) helpers.emplace_back(help, t);
  } catch (const std::system_error& error) {
    // Those that started must not wait for the others.
    for (size_t t = helpers.size(); t + 1 < static_cast<size_t>(threads); ++t) {
      gate.arrive_and_drop();
    }
    help(0);
    for (std::thread& helper : helpers) helper.join();
    return Fail(FailureKind::kDevice, "cpu", error.what());
  }
  std::vector<double> seconds;
  for (int pass = 0; pass <= kPasses; ++pass) {
    gate.arrive_and_wait();
    const Clock::time_point start = Clock::now();
    work(0);
    gate.arrive_and_wait();
    const std::chrono::duration<double> taken = Clock::now() - start;
    if (pass > 0) seconds.push_back(taken.count());
  }
  for (std::thread& helper : helpers) helper.join();
  return SpreadOf(seconds).median;
}

// 1, 2, 4, ... up to twice `threads`, and `threads`.
std::vector<int> ThreadCounts(int threads) {
  std::vector<int> counts = {threads};
  for (int count = 1; count <= 2 * threads; count *= 2) {
    if (count != threads) counts.push_back(count);
  }
  return counts;
}

// The `part`-th of `parts` near-equal runs of whole words.
std::span<const uint32_t> PartOf(std::span<const std::byte> region, size_t part,
                                 size_t parts) {
  const size_t count = region.size() / sizeof(uint32_t);
  const size_t begin = count * part / parts;
  return {reinterpret_cast<const uint32_t*>(region.data()) + begin,
          count * (part + 1) / parts - begin};
}

}  // namespace

Result<Ceilings> MeasureCpuCeilings(
    std::span<const std::span<const std::byte>> regions, int threads) {
  size_t bytes = 0;
  for (const auto& region : regions) bytes += region.size();
  SIGNET_CHECK(bytes > 0);
  Ceilings ceilings;
  ceilings.operations = "fp32";
  std::vector<uint32_t> sums(static_cast<size_t>(2 * threads));
  for (const int used : ThreadCounts(threads)) {
    SIGNET_ASSIGN_OR_RETURN(
        const double seconds, MedianSeconds(used, [&](int thread) {
          const auto part = static_cast<size_t>(thread);
          for (const auto& region : regions) {
            const auto words = PartOf(region, part, static_cast<size_t>(used));
            sums[part] += HWY_DYNAMIC_DISPATCH(Sum)(words.data(), words.size());
          }
        }));
    ceilings.read_bytes_per_second = std::max(
        ceilings.read_bytes_per_second, static_cast<double>(bytes) / seconds);
  }
  std::vector<float> products(static_cast<size_t>(threads));
  std::vector<double> operations(static_cast<size_t>(threads));
  SIGNET_ASSIGN_OR_RETURN(
      const double seconds, MedianSeconds(threads, [&](int thread) {
        const auto part = static_cast<size_t>(thread);
        double done = 0;
        products[part] = HWY_DYNAMIC_DISPATCH(Multiply)(kMultiplyRounds, done);
        operations[part] = done;
      }));
  double all = 0;
  for (const double done : operations) all += done;
  ceilings.operations_per_second = all / seconds;
  // What nobody reads, a compiler need not compute.
  const volatile float kept =
      products.front() + static_cast<float>(sums.front());
  static_cast<void>(kept);
  return ceilings;
}

}  // namespace signet::evidence
#endif  // HWY_ONCE
