#pragma once
// Times of what is enqueued on a stream, by events. One thread.

#include <algorithm>
#include <vector>

#include "backend/gpu/vendor.h"

namespace signet::backend::gpu {

/// The median time in seconds of `kPasses` calls of `enqueue`, after one that
/// is not counted; 0 after an error, which `status` then has.
template <typename F>
double MedianSeconds(Stream stream, Status& status, const F& enqueue) {
  constexpr int kPasses = 5;
  Event begin = nullptr;
  Event end = nullptr;
  const auto check = [&](Status now) {
    if (status == kOk) status = now;
  };
  check(cudaEventCreate(&begin));
  check(cudaEventCreate(&end));
  std::vector<double> seconds;
  for (int pass = 0; pass <= kPasses && status == kOk; ++pass) {
    check(cudaEventRecord(begin, stream));
    check(enqueue());
    check(cudaEventRecord(end, stream));
    check(cudaEventSynchronize(end));
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, begin, end));
    if (pass > 0) seconds.push_back(1e-3 * static_cast<double>(milliseconds));
  }
  if (begin != nullptr) cudaEventDestroy(begin);
  if (end != nullptr) cudaEventDestroy(end);
  if (status != kOk) return 0;
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

}  // namespace signet::backend::gpu
