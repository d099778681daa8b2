#include "signet/plan.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "backend/cpu/memory_limits.h"
#include "backend/gpu_devices.h"
#include "base/result.h"
#include "collective/staging.h"
#include "engine/boundary.h"
#include "engine/devices.h"
#include "engine/gpu_room.h"
#include "engine/plan_impl.h"
#include "engine/plan_text.h"
#include "engine/world_facts.h"
#include "exec/meeting_sizes.h"
#include "lower/lower.h"

namespace signet {

namespace {

// CPU ranks keep keys and values as computed, GPUs rounded (N1).
tensor::DType KvOf(KvType kv, bool on_gpu) {
  const bool rounded = kv == KvType::kDefault ? on_gpu : kv == KvType::kBF16;
  return rounded ? tensor::DType::kBF16 : tensor::DType::kF32;
}

}  // namespace

plan::PlanOptions RoomOptions(const PlanOptions& options, bool on_gpu) {
  return {.context = options.context,
          .batch = options.batch,
          .kv_dtype = KvOf(options.kv, on_gpu),
          .page_tokens = options.page_tokens,
          .decode_buckets = options.decode_buckets,
          .prefill_chunks = options.prefill_chunks,
          .all_logits = options.all_logits,
          .tp_experts = options.tp_experts == TpExperts::kOwned
                            ? plan::TpExperts::kOwned
                            : plan::TpExperts::kSplit};
}

plan::ClassBytes LargestArenas(const std::vector<step::ProgramDraft>& drafts) {
  plan::ClassBytes largest;
  for (const step::ProgramDraft& draft : drafts) {
    for (const auto& [memory_class, bytes] : draft.arena_bytes) {
      largest[memory_class] = std::max(largest[memory_class], bytes);
    }
  }
  return largest;
}

Result<std::vector<step::ProgramDraft>> LowerRank(const plan::ModelPlan& plan,
                                                  Rank rank) {
  std::vector<step::ProgramDraft> drafts;
  for (const plan::ProgramShape& shape : plan.shapes()) {
    SIGNET_ASSIGN_OR_RETURN(step::ProgramDraft draft,
                            lower::LowerModel(plan, shape, rank));
    drafts.push_back(std::move(draft));
  }
  return drafts;
}

namespace {

// The plan and its programs on given devices, one a rank. Ranks that are
// processes hold memory to meet in.
Result<std::shared_ptr<Plan::Impl>> Build(
    const std::shared_ptr<const Source::Impl>& source,
    const PlanOptions& options, const topology::MeshSpec& spec,
    std::vector<topology::DeviceIdentity> devices) {
  SIGNET_ASSIGN_OR_RETURN(const topology::Mesh mesh,
                          topology::Mesh::Make(spec, std::move(devices),
                                               topology::Emulation::kRefused));
  SIGNET_ASSIGN_OR_RETURN(
      std::shared_ptr<const plan::ModelPlan> model_plan,
      plan::MakeModelPlan(source->manifest, mesh,
                          RoomOptions(options, mesh.device(Rank(0)).is_gpu())));

  std::vector<std::vector<step::ProgramDraft>> drafts;  // [rank][shape]
  std::vector<plan::ClassBytes> arenas;
  for (int r = 0; r < mesh.num_ranks(); ++r) {
    SIGNET_ASSIGN_OR_RETURN(std::vector<step::ProgramDraft> rank_drafts,
                            LowerRank(*model_plan, Rank(r)));
    arenas.push_back(LargestArenas(rank_drafts));
    drafts.push_back(std::move(rank_drafts));
  }
  auto impl = std::make_shared<Plan::Impl>();
  impl->source = source;
  impl->plan = model_plan;
  impl->contract_id = model_plan->contract_id().Hex();
  for (int r = 0; r < mesh.num_ranks(); ++r) {
    impl->devices.push_back(DeviceName(mesh.device(Rank(r))));
  }
  RejectionList rejections;
  const auto start = std::chrono::steady_clock::now();
  for (std::vector<step::ProgramDraft>& rank_drafts : drafts) {
    std::vector<step::SealedProgram>& programs = impl->programs.emplace_back();
    for (step::ProgramDraft& draft : rank_drafts) {
      Result<step::SealedProgram> program =
          step::Seal(std::move(draft), *model_plan);
      if (program) {
        ++impl->sealing.programs;
        impl->sealing.steps += std::ssize(program->steps());
        programs.push_back(*std::move(program));
      } else {
        rejections.Absorb(std::move(program).error());
      }
    }
  }
  const std::chrono::duration<double, std::milli> taken =
      std::chrono::steady_clock::now() - start;
  impl->sealing.milliseconds = taken.count();
  if (!rejections.empty()) return rejections.Take();
  for (size_t r = 0; options.world && r < arenas.size(); ++r) {
    arenas[r][MemoryClass::kCommunicator] =
        collective::RankStaging(mesh, exec::MeetingSizesOf(impl->programs[r]));
  }
  impl->memory = PlanMemory(*model_plan, arenas);
  impl->admission = AdmitNow(*model_plan, impl->memory);
  return impl;
}

// The smallest program of `kind` that holds `rows`, as ProgramText has it.
Result<std::string> FindText(const Plan::Impl& made, int rank, ShapeKind kind,
                             int64_t rows) {
  if (rank < 0 || rank >= made.plan->mesh().num_ranks()) {
    return Reject(RejectionCode::kPlanOptionInvalid, "--rank",
                  "the mesh has no such rank", std::to_string(rank),
                  "0 ... " + std::to_string(made.plan->mesh().num_ranks() - 1));
  }
  const plan::ShapeKind wanted = kind == ShapeKind::kDecode
                                     ? plan::ShapeKind::kDecode
                                     : plan::ShapeKind::kPrefill;
  const step::SealedProgram* best = nullptr;
  for (const step::SealedProgram& program :
       made.programs[static_cast<size_t>(rank)]) {
    if (program.shape().kind != wanted) continue;
    if (rows == 0 || program.shape().rows >= rows) {
      // Programs ascend by rows: the first that holds them, or the last.
      best = &program;
      if (rows != 0) break;
    }
  }
  if (best == nullptr) {
    return Reject(RejectionCode::kPlanOptionInvalid, "--batch",
                  "no shape of the plan holds this many rows",
                  std::to_string(rows));
  }
  return best->text();
}

// Each GPU has room of its own.
Result<void> AdmitGpus(const plan::ModelPlan& plan,
                       const plan::MemoryPlan& memory) {
  std::vector<plan::MemoryRoom> rooms;
  for (const Rank rank : RanksHere(plan.mesh())) {
    const topology::DeviceIdentity& device = plan.mesh().device(rank);
    rooms.push_back(
        {.name = DeviceName(device),
         .ranks = {rank},
         .available = RoomOnGpu(backend::GpuFreeMemory(device.uuid))});
  }
  return AdmitMemory(memory, rooms);
}

}  // namespace

Result<void> AdmitNow(const plan::ModelPlan& plan,
                      const plan::MemoryPlan& memory) {
  // CPU ranks of this host share its memory; other hosts ask for themselves.
  const topology::Mesh& mesh = plan.mesh();
  plan::MemoryRoom host = {
      .name = "",
      .ranks = RanksHere(mesh),
      .available = backend::cpu::AvailableMemory(
          {}, backend::cpu::ProcessLimits::OfThisProcess())};
  if (host.ranks.empty()) return {};
  if (mesh.device(host.ranks.front()).is_gpu()) return AdmitGpus(plan, memory);
  host.name = DeviceName(mesh.device(host.ranks.front()));
  if (host.ranks.size() > 1) {
    host.name += " ... " + DeviceName(mesh.device(host.ranks.back()));
  }
  return AdmitMemory(memory, {host});
}

Plan::Plan(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

Result<Plan> Plan::Make(const Source& source, const PlanOptions& options) {
  return AtBoundary("plan", [&] {
    return options.world ? MakeTogether(source, options)
                         : MakeHere(source, options);
  });
}

Result<Plan> Plan::MakeHere(const Source& source, const PlanOptions& options) {
  SIGNET_ASSIGN_OR_RETURN(const topology::MeshSpec spec,
                          topology::MeshSpec::Parse(options.mesh));
  SIGNET_ASSIGN_OR_RETURN(std::vector<topology::DeviceIdentity> devices,
                          ChooseDevices(options.devices, spec.num_ranks()));
  SIGNET_ASSIGN_OR_RETURN(
      std::shared_ptr<Impl> impl,
      Build(source.impl_, options, spec, std::move(devices)));
  return Plan(std::move(impl));
}

Result<Plan> Plan::MakeTogether(const Source& source,
                                const PlanOptions& options) {
  const std::shared_ptr<World::Impl>& world = options.world->impl_;
  SIGNET_ASSIGN_OR_RETURN(std::vector<topology::DeviceIdentity> devices,
                          MeetDevices(*world, options.mesh, options.devices));
  // It was parsed before the devices met.
  SIGNET_ASSIGN_OR_RETURN(const topology::MeshSpec spec,
                          topology::MeshSpec::Parse(options.mesh));
  std::string epoch = world->NextEpoch();
  const Result<std::shared_ptr<Impl>> impl =
      Build(source.impl_, options, spec, std::move(devices));
  if (impl) {
    (*impl)->world = world;
    (*impl)->epoch = std::move(epoch);
  }
  SIGNET_RETURN_IF_ERROR(
      world->Agree("plan", impl.map([](const std::shared_ptr<Impl>& made) {
        return PlanFacts(*made);
      })));
  return Plan(*impl);
}

Result<void> Plan::Admission() const {
  return AtBoundary("plan", [&]() -> Result<void> {
    SIGNET_RETURN_IF_ERROR(impl_->admission);
    return {};
  });
}

SealingFigures Plan::sealing() const { return impl_->sealing; }

const std::string& Plan::contract_id() const { return impl_->contract_id; }

const std::vector<std::string>& Plan::devices() const { return impl_->devices; }

Result<std::string> Plan::Text() const {
  return AtBoundary("plan",
                    [&]() -> Result<std::string> { return PlanText(*impl_); });
}

Result<std::string> Plan::Json() const {
  return AtBoundary("plan",
                    [&]() -> Result<std::string> { return PlanJson(*impl_); });
}

Result<std::string> Plan::ProgramText(int rank, ShapeKind kind,
                                      int64_t rows) const {
  return AtBoundary("program",
                    [&] { return FindText(*impl_, rank, kind, rows); });
}

}  // namespace signet
