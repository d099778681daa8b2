#pragma once
// The pass-keys of contract X1. A step kernel can be launched only with a
// LaunchKey, which exec::Executor alone can make; load-time work takes a
// LoadKey, which store::LoadTransaction alone can make. KernelBench is the
// holder for tests and benchmarks; a check over includes keeps it out of the
// product.

namespace signet::exec {
class Executor;
}
namespace signet::store {
class LoadTransaction;
}
namespace signet::backend::testing {
class KernelBench;
}

namespace signet::backend {

class LaunchKey {
  friend class exec::Executor;
  friend class testing::KernelBench;
  explicit LaunchKey() = default;
};

class LoadKey {
  friend class store::LoadTransaction;
  friend class testing::KernelBench;
  explicit LoadKey() = default;
};

}  // namespace signet::backend
