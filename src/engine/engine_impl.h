#pragma once
// What public Engine and Model handles hold.

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "backend/device.h"
#include "engine/plan_impl.h"
#include "signet/engine.h"
#include "store/weight_version.h"
#include "text/tokenizer.h"

namespace signet {

struct Engine::Impl {
  int threads = 1;
  std::unique_ptr<backend::Device> device;  // owns the mappings of its models
};

struct Model::Impl {
  std::shared_ptr<Engine::Impl> engine;  // outlives the weights
  std::shared_ptr<const Plan::Impl> plan;
  std::shared_ptr<const text::Tokenizer> tokenizer;  // null: none
  std::vector<int32_t> stop_ids;                     // ascending

  // Guards what a session takes when it is made and Unload gives up.
  mutable std::mutex mutex;
  std::shared_ptr<const store::WeightVersion> weights;  // null: unloaded
  int64_t sessions = 0;
};

}  // namespace signet
