#include "backend/gpu/delay.h"

namespace signet::backend::gpu {
namespace {

__global__ void DelayKernel(long long nanoseconds) {
  DependencyWait();
  long long start = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
  long long now = start;
  while (now - start < nanoseconds) {
    __nanosleep(1000);
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  }
}

}  // namespace

Status LaunchDelay(Stream stream, std::chrono::nanoseconds duration) {
  return Launch(DelayKernel, dim3(1), dim3(1), 0, stream,
                static_cast<long long>(duration.count()));
}

}  // namespace signet::backend::gpu
