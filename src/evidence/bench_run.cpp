#include "evidence/bench_run.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/check.h"
#include "engine/plan_impl.h"
#include "evidence/bench_watched_device.h"
#include "evidence/ranks.h"
#include "store/load_transaction.h"

namespace signet::evidence {
namespace {

// The ids a route wrote, of its live rows.
std::span<const int32_t> RoutedIds(const step::SealedProgram& program,
                                   const step::MoeRoute& route,
                                   std::span<const exec::TapBuffer> written,
                                   int64_t live) {
  const std::string& name = program.buffers()[route.ids].name;
  for (const exec::TapBuffer& buffer : written) {
    if (buffer.name != name) continue;
    return {static_cast<const int32_t*>(buffer.data),
            static_cast<size_t>(live * route.top_k)};
  }
  return {};
}

}  // namespace

Result<BenchModel> LoadBenchModel(const SidePlan* side, int threads) {
  const topology::Mesh& mesh = side->plan->mesh();
  SIGNET_CHECK(mesh.num_ranks() == 1);
  SIGNET_RETURN_IF_ERROR(AdmitNow(*side->plan, side->memory));
  SIGNET_ASSIGN_OR_RETURN(std::vector<std::unique_ptr<backend::Device>> devices,
                          MakeDevices(mesh, /*threads=*/1));
  BenchModel model{.side = side,
                   .threads = threads,
                   .loader = std::move(devices.front()),
                   .weights = nullptr};
  store::LoadTransaction transaction(side->plan, {model.loader.get()});
  SIGNET_RETURN_IF_ERROR(transaction.Read({}));
  SIGNET_ASSIGN_OR_RETURN(model.weights, std::move(transaction).Commit());
  return model;
}

BenchRun::~BenchRun() = default;

Result<std::unique_ptr<BenchRun>> BenchRun::Start(const BenchModel& model,
                                                  BenchBinding binding) {
  std::unique_ptr<BenchRun> run(new BenchRun(model, binding));
  SIGNET_ASSIGN_OR_RETURN(std::vector<std::unique_ptr<backend::Device>> devices,
                          MakeDevices(run->plan().mesh(), model.threads));
  auto device = std::make_unique<WatchedDevice>(std::move(devices.front()));
  run->device_ = device.get();
  const bool tapped = binding == BenchBinding::kTapped;
  std::vector<exec::RankSetup> ranks;
  ranks.push_back({.device = std::move(device),
                   .programs = model.side->programs.front(),
                   .observer = tapped ? run.get() : nullptr});
  SIGNET_ASSIGN_OR_RETURN(
      run->mesh_,
      exec::MeshExecutor::Make(run->plan(), model.weights, std::move(ranks)));
  run->state_.emplace(run->mesh_->MakeSequences(run->plan()));
  if (tapped) run->ShowRoutes();
  return run;
}

void BenchRun::ShowRoutes() {
  exec::ProgramSet& programs = mesh_->programs(Rank(0));
  for (const std::span<exec::BoundProgram> set :
       {programs.decode(), programs.prefill()}) {
    for (const exec::BoundProgram& bound : set) {
      const step::SealedProgram& sealed = Sealed(bound.shape());
      for (size_t i = 0; i < sealed.steps().size(); ++i) {
        const auto* route = std::get_if<step::MoeRoute>(&sealed.steps()[i]);
        if (route == nullptr) continue;
        const std::string& name = sealed.buffers()[route->ids].name;
        for (const exec::TapBuffer& shown : bound.taps()->points[i].written) {
          if (shown.name != name) continue;
          device_->Show(shown.data, shown.shape.StorageBytes(shown.dtype));
        }
      }
    }
  }
}

const step::SealedProgram& BenchRun::Sealed(
    const plan::ProgramShape& shape) const {
  const std::vector<step::SealedProgram>& programs =
      model_.side->programs.front();
  const auto found =
      std::find_if(programs.begin(), programs.end(),
                   [&](const auto& p) { return p.shape() == shape; });
  SIGNET_CHECK(found != programs.end());
  return *found;
}

backend::SamplingRow BenchRun::SamplingAt(int64_t position) const {
  return {.id_bound = static_cast<int32_t>(plan().config().vocab),
          .position = static_cast<uint32_t>(position)};
}

void BenchRun::Begin(const exec::BoundProgram& bound, int64_t live) {
  last_ = {.program = &Sealed(bound.shape()),
           .bound = &bound,
           .rows = {.live = live},
           .times = {}};
  step_ = 0;
  if (routes_ != nullptr) routes_->BeginCall();
}

Result<void> BenchRun::Launch(plan::ShapeKind kind, int64_t rows_wanted,
                              std::span<const exec::RowInput> rows,
                              std::span<const backend::SamplingRow> sampling) {
  if (by_launch_) {
    SIGNET_ASSIGN_OR_RETURN(exec::MeshExecutor::CallProfile profile,
                            mesh_->Profile(kind, rows_wanted, rows, sampling));
    last_.times = std::move(profile.times);
    return {};
  }
  const auto start = std::chrono::steady_clock::now();
  SIGNET_RETURN_IF_ERROR(kind == plan::ShapeKind::kDecode
                             ? mesh_->Decode(rows, sampling)
                             : mesh_->Prefill(rows_wanted, rows, sampling));
  const std::chrono::duration<double> taken =
      std::chrono::steady_clock::now() - start;
  last_.seconds = taken.count();
  return {};
}

Result<BenchRun::Chunk> BenchRun::Prefill(SequenceSlot slot,
                                          std::span<const int32_t> rest) {
  const auto left = static_cast<int64_t>(rest.size());
  const exec::BoundProgram& bound = mesh_->programs(Rank(0)).Prefill(left);
  const int64_t live = std::min(bound.shape().rows, left);
  const int64_t begin = state_->length(slot);
  Begin(bound, live);
  last_.rows.end = begin + live;
  std::vector<exec::RowInput> rows;
  std::vector<backend::SamplingRow> sampling;
  for (int64_t i = 0; i < live; ++i) {
    rows.push_back({.id = rest[static_cast<size_t>(i)],
                    .slot = slot.value(),
                    .position = static_cast<int32_t>(begin + i)});
    last_.rows.attended += static_cast<double>(begin + i + 1);
  }
  sampling.push_back(SamplingAt(begin + live));
  state_->Extend(slot, live);
  SIGNET_RETURN_IF_ERROR(
      Launch(plan::ShapeKind::kPrefill, left, rows, sampling));
  return Chunk{.rows = live, .drawn = *bound.io().sampled};
}

Result<std::vector<int32_t>> BenchRun::Decode(std::span<const int32_t> ids) {
  const auto live = static_cast<int64_t>(ids.size());
  const exec::BoundProgram& bound = mesh_->programs(Rank(0)).Decode(live);
  Begin(bound, live);
  std::vector<exec::RowInput> rows;
  std::vector<backend::SamplingRow> sampling;
  for (size_t i = 0; i < ids.size(); ++i) {
    const SequenceSlot slot(static_cast<int32_t>(i));
    const int64_t position = state_->length(slot);
    state_->Extend(slot, 1);
    rows.push_back({.id = ids[i],
                    .slot = slot.value(),
                    .position = static_cast<int32_t>(position)});
    sampling.push_back(SamplingAt(position + 1));
    last_.rows.end = std::max(last_.rows.end, position + 1);
    last_.rows.attended += static_cast<double>(position + 1);
  }
  SIGNET_RETURN_IF_ERROR(
      Launch(plan::ShapeKind::kDecode, live, rows, sampling));
  const int32_t* sampled = bound.io().sampled;
  return std::vector<int32_t>(sampled, sampled + live);
}

void BenchRun::Clear() { state_->Reset(); }

void BenchRun::OnStep(std::string_view kind,
                      std::span<const exec::TapBuffer> written,
                      int64_t live_rows) {
  const step::Step& step = last_.program->steps()[step_++];
  SIGNET_CHECK(KindName(step) == kind);
  const auto* route = std::get_if<step::MoeRoute>(&step);
  if (routes_ != nullptr && route != nullptr) {
    routes_->Add(RoutedIds(*last_.program, *route, written, live_rows));
  }
}

}  // namespace signet::evidence
