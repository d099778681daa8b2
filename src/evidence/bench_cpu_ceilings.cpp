// The ceilings of the CPU: all threads sum a large array, then multiply and
// add in registers.

#include <algorithm>
#include <barrier>
#include <chrono>
#include <functional>
#include <memory>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

#include "backend/cpu/simd_targets.h"
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

float Sum(const float* values, size_t count) {
  const hn::ScalableTag<float> d;
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

}  // namespace

Result<Ceilings> MeasureCpuCeilings(uint64_t bytes, int threads) {
  const auto count = static_cast<size_t>(bytes / sizeof(float));
  const std::unique_ptr<float[]> values(new (std::nothrow) float[count]);
  if (count == 0 || values == nullptr) {
    return Fail(FailureKind::kMemory, "cpu",
                "no memory to measure how fast it is read");
  }
  std::fill_n(values.get(), count, 1.0f);
  Ceilings ceilings;
  ceilings.operations = "fp32";
  std::vector<float> sinks(static_cast<size_t>(2 * threads));
  for (const int used : ThreadCounts(threads)) {
    const auto parts = static_cast<size_t>(used);
    SIGNET_ASSIGN_OR_RETURN(
        const double seconds, MedianSeconds(used, [&](int thread) {
          const auto part = static_cast<size_t>(thread);
          const size_t begin = count * part / parts;
          const size_t end = count * (part + 1) / parts;
          sinks[part] =
              HWY_DYNAMIC_DISPATCH(Sum)(values.get() + begin, end - begin);
        }));
    ceilings.read_bytes_per_second =
        std::max(ceilings.read_bytes_per_second,
                 static_cast<double>(count * sizeof(float)) / seconds);
  }
  std::vector<double> operations(static_cast<size_t>(threads));
  SIGNET_ASSIGN_OR_RETURN(
      const double seconds, MedianSeconds(threads, [&](int thread) {
        const auto part = static_cast<size_t>(thread);
        double done = 0;
        sinks[part] = HWY_DYNAMIC_DISPATCH(Multiply)(kMultiplyRounds, done);
        operations[part] = done;
      }));
  double all = 0;
  for (const double done : operations) all += done;
  ceilings.operations_per_second = all / seconds;
  // What nobody reads, a compiler need not compute.
  const volatile float kept = sinks.front();
  static_cast<void>(kept);
  return ceilings;
}

}  // namespace signet::evidence
#endif  // HWY_ONCE
