#include "support/running_model.h"

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "backend/cpu/cpu_device.h"
#include "lower/lower.h"
#include "store/load_transaction.h"

namespace signet::testing {
namespace {

topology::DeviceIdentity Identity(const backend::DeviceFacts& facts) {
  return {.backend = facts.backend,
          .uuid = facts.identity,
          .pci = facts.pci,
          .ordinal = facts.ordinal,
          .architecture = facts.architecture,
          .memory_bytes = facts.memory.value()};
}

std::shared_ptr<const plan::ModelPlan> PlanFor(
    const backend::Device& device, const std::filesystem::path& folder,
    const plan::PlanOptions& options) {
  const topology::Mesh mesh = ValueOrDie(topology::Mesh::Make(
      ValueOrDie(topology::MeshSpec::Parse("single")),
      {Identity(device.facts())}, topology::Emulation::kRefused));
  return ValueOrDie(plan::MakeModelPlan(OpenManifest(folder), mesh, options));
}

}  // namespace

void Die(const Error& error) {
  std::fprintf(stderr, "%s\n", Describe(error).c_str());
  std::abort();
}

std::shared_ptr<const model::Manifest> OpenManifest(
    const std::filesystem::path& folder) {
  return ValueOrDie(
      model::BuildManifest(std::make_shared<const model::Checkpoint>(
          ValueOrDie(model::Checkpoint::Open(folder)))));
}

topology::Mesh CpuMesh(std::string_view spec) {
  const topology::MeshSpec parsed = ValueOrDie(topology::MeshSpec::Parse(spec));
  std::vector<topology::DeviceIdentity> devices;
  for (int r = 0; r < parsed.num_ranks(); ++r) {
    devices.push_back(Identity(backend::cpu::CpuFacts(r)));
  }
  return ValueOrDie(topology::Mesh::Make(parsed, std::move(devices),
                                         topology::Emulation::kRefused));
}

std::shared_ptr<const plan::ModelPlan> MakePlan(
    const std::filesystem::path& folder, const plan::PlanOptions& options) {
  return ValueOrDie(
      plan::MakeModelPlan(OpenManifest(folder), CpuMesh(), options));
}

std::vector<step::SealedProgram> SealAll(const plan::ModelPlan& plan,
                                         Rank rank) {
  std::vector<step::SealedProgram> sealed;
  for (const plan::ProgramShape& shape : plan.shapes()) {
    sealed.push_back(ValueOrDie(
        step::Seal(ValueOrDie(lower::LowerModel(plan, shape, rank)), plan)));
  }
  return sealed;
}

RunningModel::RunningModel(const std::filesystem::path& folder,
                           const plan::PlanOptions& options,
                           exec::TapObserver* observer, int threads)
    : RunningModel(folder, options,
                   {.device = backend::cpu::MakeCpuDevice(0, threads),
                    .observer = observer}) {}

RunningModel::RunningModel(const std::filesystem::path& folder,
                           const plan::PlanOptions& options, RunsOn runs_on)
    : plan_(PlanFor(*runs_on.device, folder, options)),
      device_(std::move(runs_on.device)),
      sealed_(SealAll(*plan_)),
      keeps_failure_(runs_on.keeps_failure) {
  store::LoadTransaction transaction(plan_, {device_.get()});
  ValueOrDie(transaction.Read({}));
  weights_ = ValueOrDie(std::move(transaction).Commit());
  programs_ = ValueOrDie(exec::ProgramSet::Make(
      sealed_, *plan_, weights_, device_.get(), runs_on.observer));
  executor_ = std::make_unique<exec::Executor>(device_.get());
  if (runs_on.recorded) ValueOrDie(executor_->Record(*programs_));
  state_ = std::make_unique<exec::SequenceState>(
      plan_->pool(), plan_->options().batch,
      std::vector{programs_->page_table()});
}

backend::SamplingRow RunningModel::Drawing(int64_t position) const {
  backend::SamplingRow row = drawing_;
  row.id_bound = static_cast<int32_t>(plan_->config().vocab);
  row.position = static_cast<uint32_t>(position);
  return row;
}

void RunningModel::Run(const exec::BoundProgram& program,
                       const std::vector<exec::RowInput>& rows,
                       const std::vector<backend::SamplingRow>& sampling) {
  const Result<void> ran = executor_->Run(program, rows, sampling);
  if (ran) return;
  if (!keeps_failure_) Die(ran.error());
  if (failure_.empty()) failure_ = Describe(ran.error());
}

std::vector<float> RunningModel::Logits(const exec::BoundProgram& program,
                                        size_t rows) const {
  const exec::Arenas& arenas = programs_->arenas();
  const std::ptrdiff_t offset =
      reinterpret_cast<const std::byte*>(program.io().logits) -
      arenas.host(MemoryClass::kIo);
  const auto* logits = reinterpret_cast<const float*>(
      ValueOrDie(arenas.Look(MemoryClass::kIo)).data() + offset);
  return {logits, logits + rows * static_cast<size_t>(plan_->config().vocab)};
}

std::vector<float> RunningModel::Prefill(SequenceSlot slot,
                                         const std::vector<int32_t>& ids) {
  std::vector<float> logits;
  size_t done = 0;
  while (done < ids.size()) {
    const auto rest = static_cast<int64_t>(ids.size() - done);
    const exec::BoundProgram& program = programs_->Prefill(rest);
    const auto live = static_cast<size_t>(std::min(rest, program.shape().rows));
    const int64_t first = state_->length(slot);
    state_->Extend(slot, static_cast<int64_t>(live));
    std::vector<exec::RowInput> rows;
    std::vector<backend::SamplingRow> sampling;
    for (size_t i = 0; i < live; ++i) {
      const auto position =
          static_cast<int32_t>(first) + static_cast<int32_t>(i);
      rows.push_back({ids[done + i], slot.value(), position});
      sampling.push_back(Drawing(position + 1));
    }
    const bool every_row = program.shape().logits == plan::LogitsOf::kEveryRow;
    if (!every_row) sampling.erase(sampling.begin(), sampling.end() - 1);
    Run(program, rows, sampling);
    if (!every_row) logits.clear();
    const std::vector<float> more = Logits(program, sampling.size());
    logits.insert(logits.end(), more.begin(), more.end());
    last_ = &program;
    done += live;
  }
  return logits;
}

std::vector<float> RunningModel::Decode(const std::vector<SequenceSlot>& slots,
                                        const std::vector<int32_t>& ids) {
  std::vector<exec::RowInput> rows;
  std::vector<backend::SamplingRow> sampling;
  for (size_t i = 0; i < slots.size(); ++i) {
    const int64_t position = state_->length(slots[i]);
    state_->Extend(slots[i], 1);
    rows.push_back({ids[i], slots[i].value(), static_cast<int32_t>(position)});
    sampling.push_back(Drawing(position + 1));
  }
  const exec::BoundProgram& program =
      programs_->Decode(static_cast<int64_t>(rows.size()));
  Run(program, rows, sampling);
  last_ = &program;
  return Logits(program, rows.size());
}

std::vector<std::byte> RunningModel::StateBytes(
    MemoryClass memory_class) const {
  const auto seen = ValueOrDie(programs_->arenas().Look(memory_class));
  return {seen.begin(), seen.end()};
}

}  // namespace signet::testing
