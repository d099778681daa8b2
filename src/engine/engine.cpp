#include "signet/engine.h"

#include <algorithm>
#include <utility>

#include "backend/cpu/cpu_device.h"
#include "backend/gpu_devices.h"
#include "base/result.h"
#include "engine/boundary.h"
#include "engine/device_factory.h"
#include "engine/engine_impl.h"
#include "engine/threads.h"
#include "engine/world_facts.h"
#include "store/load_transaction.h"
#include "text/chat_prompt.h"

namespace signet {
namespace {

constexpr uint64_t kMaxTokenizerBytes = uint64_t{256} << 20;
constexpr int kMaxThreads = 1024;

Result<std::shared_ptr<const text::Tokenizer>> LoadTokenizer(
    const model::Checkpoint& checkpoint) {
  if (!checkpoint.tokenizer_file()) {
    return std::shared_ptr<const text::Tokenizer>();
  }
  SIGNET_RETURN_IF_ERROR(checkpoint.tokenizer_file()->CheckUnchanged());
  SIGNET_ASSIGN_OR_RETURN(
      const std::string json,
      checkpoint.tokenizer_file()->ReadAll(kMaxTokenizerBytes));
  return text::Tokenizer::Parse(json, checkpoint.tokenizer_config_json());
}

Result<void> CheckChat(const Source::Impl& source,
                       const text::Tokenizer* tokenizer) {
  SIGNET_RETURN_IF_ERROR(source.chat);
  if (tokenizer == nullptr) {
    return Reject(RejectionCode::kRequestInvalid, source.checkpoint->folder(),
                  "the checkpoint has no tokenizer.json; give token ids");
  }
  return text::CheckChatTokens(*tokenizer);
}

std::vector<int32_t> StopIds(const Source::Impl& source,
                             const text::Tokenizer* tokenizer, bool has_chat) {
  std::vector<int32_t> ids = source.manifest->config().eos_ids;
  const std::vector<int32_t>& generation = source.generation.eos_ids;
  ids.insert(ids.end(), generation.begin(), generation.end());
  if (tokenizer != nullptr) {
    const std::span<const int32_t> more = tokenizer->eos_ids();
    ids.insert(ids.end(), more.begin(), more.end());
    if (has_chat) ids.push_back(*tokenizer->FindAdded(text::kEndOfTurn));
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

}  // namespace

Engine::Engine(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

DeviceFactory MachineDevices() {
  return [](const topology::DeviceIdentity& identity,
            int num_threads) -> Result<std::unique_ptr<backend::Device>> {
    if (identity.is_gpu()) return backend::MakeGpuDevice(identity.uuid);
    return backend::cpu::MakeCpuDevice(identity.ordinal, num_threads);
  };
}

Result<Engine> MakeEngine(const EngineOptions& options, DeviceFactory factory) {
  if (options.threads < 0 || options.threads > kMaxThreads) {
    return Reject(RejectionCode::kPlanOptionInvalid, "--threads",
                  "the number of threads is out of range",
                  std::to_string(options.threads),
                  "0 ... " + std::to_string(kMaxThreads));
  }
  auto impl = std::make_shared<Engine::Impl>();
  impl->threads = WorkingThreads(options.threads);
  if (options.verify_files) impl->scan = store::Scan::kEverything;
  impl->make_device = std::move(factory);
  return Engine::Impl::Wrap(std::move(impl));
}

Result<Engine> Engine::Make(const EngineOptions& options) {
  return AtBoundary("engine",
                    [&] { return MakeEngine(options, MachineDevices()); });
}

Result<Model> Engine::Load(
    const Plan& plan,
    const std::function<void(const LoadProgress&)>& progress) {
  return AtBoundary("load", [&] { return LoadTogether(plan, progress); });
}

Result<Model> Engine::LoadTogether(
    const Plan& plan,
    const std::function<void(const LoadProgress&)>& progress) {
  const Plan::Impl& made = *plan.impl_;
  World::Impl* const world = made.world.get();
  // Before any process reserves what another still counts as free.
  Result<void> admitted = AdmitNow(*made.plan, made.memory);
  if (world != nullptr) {
    admitted =
        world->Agree("memory", admitted.map([&] { return EpochFacts(made); }));
  }
  SIGNET_RETURN_IF_ERROR(admitted);
  Result<Model> model = LoadHere(plan, progress);
  if (world == nullptr) return model;
  // No process has the model before all have it (T1).
  SIGNET_RETURN_IF_ERROR(world->Together(
      "load", model ? Result<void>() : tl::unexpected<Error>(model.error())));
  return model;
}

Result<Model> Engine::LoadHere(
    const Plan& plan,
    const std::function<void(const LoadProgress&)>& progress) {
  const Plan::Impl& made = *plan.impl_;
  World::Impl* const world = made.world.get();
  auto impl = std::make_shared<Model::Impl>();
  impl->engine = impl_;
  impl->plan = plan.impl_;
  SIGNET_ASSIGN_OR_RETURN(impl->tokenizer,
                          LoadTokenizer(*made.source->checkpoint));
  impl->chat = CheckChat(*made.source, impl->tokenizer.get());
  impl->stop_ids =
      StopIds(*made.source, impl->tokenizer.get(), impl->chat.has_value());

  std::vector<backend::Device*> devices;
  const topology::Mesh& mesh = made.plan->mesh();
  for (int r = 0; r < mesh.num_ranks(); ++r) {
    if (!made.IsHere(Rank(r))) {
      devices.push_back(nullptr);
      continue;
    }
    // Loading needs no kernels: one thread.
    SIGNET_ASSIGN_OR_RETURN(
        std::unique_ptr<backend::Device> device,
        impl_->make_device(mesh.device(Rank(r)), /*num_threads=*/1));
    devices.push_back(impl->devices.emplace_back(std::move(device)).get());
  }
  store::LoadTransaction transaction(made.plan, devices);
  SIGNET_RETURN_IF_ERROR(transaction.Read(
      [&](Bytes done, Bytes total) {
        if (world != nullptr) world->world->Beat();
        if (progress) progress({done.value(), total.value()});
      },
      impl_->scan));
  SIGNET_ASSIGN_OR_RETURN(impl->weights, std::move(transaction).Commit());
  if (const std::optional<Digest>& content = impl->weights->content_digest()) {
    impl->content_digest = content->Hex();
  }
  return Model(std::move(impl));
}

}  // namespace signet
