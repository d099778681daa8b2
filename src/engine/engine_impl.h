#pragma once
// What public Engine and Model handles hold.

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "backend/device.h"
#include "engine/device_factory.h"
#include "engine/plan_impl.h"
#include "signet/engine.h"
#include "store/finite_scan.h"
#include "store/weight_version.h"
#include "text/tokenizer.h"

namespace signet {

struct Engine::Impl {
  int threads = 1;                             // of all ranks of a session
  store::Scan scan = store::Scan::kSensitive;  // of what is loaded
  DeviceFactory make_device;

  static Engine Wrap(std::shared_ptr<Impl> impl) {
    return Engine(std::move(impl));
  }
};

struct Model::Impl {
  std::shared_ptr<Engine::Impl> engine;
  std::shared_ptr<const Plan::Impl> plan;
  std::shared_ptr<const text::Tokenizer> tokenizer;  // null: none
  std::vector<int32_t> stop_ids;                     // ascending
  std::optional<std::string> content_digest;
  Result<void> chat;  // why no conversation can be rendered, if so

  // One a rank; they own the weights' memory and outlive it.
  std::vector<std::unique_ptr<backend::Device>> devices;

  // Guards what a session takes when it is made and Unload gives up.
  mutable std::mutex mutex;
  std::shared_ptr<const store::WeightVersion> weights;  // null: unloaded
  int64_t sessions = 0;

  Result<std::vector<int32_t>> Encode(std::string_view text) const;
  Result<std::vector<int32_t>> EncodeChat(const Chat& chat) const;
};

}  // namespace signet
