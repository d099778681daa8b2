#pragma once
// A device that shows observers only what they asked to see: everything else
// would cost more to copy than it took to compute.

#include <cstddef>
#include <memory>
#include <set>
#include <utility>

#include "backend/forwarding_device.h"

namespace signet::evidence {

class WatchedDevice final : public backend::ForwardingDevice {
 public:
  explicit WatchedDevice(std::unique_ptr<backend::Device> inner)
      : ForwardingDevice(*inner), inner_(std::move(inner)) {}

  /// The bytes at `from` are copied when an observer is shown them.
  void Show(const void* from, Bytes size) {
    shown_.emplace(from, size.value());
  }
  Result<void> Download(const std::byte* from, Bytes size,
                        std::byte* to) override {
    if (!shown_.contains({from, size.value()})) return {};
    return ForwardingDevice::Download(from, size, to);
  }

 private:
  std::unique_ptr<backend::Device> inner_;
  std::set<std::pair<const void*, uint64_t>> shown_;
};

}  // namespace signet::evidence
