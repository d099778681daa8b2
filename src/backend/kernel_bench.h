#pragma once
// Makes launch keys for kernel tests and benchmarks. Only files named
// *_test.cpp, or below tests/ and bench/, may include this; tools/check_layers
// enforces it.

#include "backend/launch_key.h"

namespace signet::backend::testing {

class KernelBench {
 public:
  static LaunchKey Launch() { return LaunchKey(); }
  static LoadKey Load() { return LoadKey(); }
};

}  // namespace signet::backend::testing
