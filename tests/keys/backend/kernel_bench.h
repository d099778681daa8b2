#pragma once
// Makes launch keys for kernel tests and benchmarks (contract X1). Reached
// through the target signet_kernel_bench alone, which only they may link:
// cmake/KernelBench.cmake looks at link lines, tools/check_layers at includes.

#include "backend/launch_key.h"

namespace signet::backend::testing {

class KernelBench {
 public:
  static LaunchKey Launch() { return LaunchKey(); }
  static LoadKey Load() { return LoadKey(); }
};

}  // namespace signet::backend::testing
