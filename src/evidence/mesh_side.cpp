#include "evidence/mesh_side.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/check.h"
#include "engine/plan_impl.h"
#include "evidence/merge.h"
#include "evidence/ranks.h"
#include "evidence/swapped_experts.h"
#include "store/load_transaction.h"

namespace signet::evidence {
namespace {

const SequenceSlot kSlot(0);

// A rank keeps values where no rank before it holds the same layers.
std::vector<Keep> WhoKeeps(const SidePlan& side) {
  std::set<std::optional<size_t>> seen;
  std::vector<Keep> keeps;
  for (const std::vector<step::SealedProgram>& programs : side.programs) {
    std::optional<size_t> first;
    const RankState state = FindState(programs.front(), *side.plan);
    for (size_t i = 0; i < state.size() && !first; ++i) {
      if (state[i].k || state[i].recurrent) first = i;
    }
    keeps.push_back(seen.insert(first).second ? Keep::kValues : Keep::kDigests);
  }
  return keeps;
}

Result<std::shared_ptr<const store::WeightVersion>> Load(
    const SidePlan& side, std::optional<Fault> fault, store::Scan scan,
    std::vector<std::unique_ptr<backend::Device>>* loaders) {
  SIGNET_ASSIGN_OR_RETURN(*loaders,
                          MakeDevices(side.plan->mesh(), /*threads=*/1));
  if (fault == Fault::kSwapExperts) {
    loaders->front() =
        SwapExperts(std::move(loaders->front()), side.plan->manifest());
  }
  std::vector<backend::Device*> devices;
  for (const auto& loader : *loaders) devices.push_back(loader.get());
  store::LoadTransaction transaction(side.plan, devices);
  SIGNET_RETURN_IF_ERROR(transaction.Read({}, scan));
  return std::move(transaction).Commit();
}

}  // namespace

Result<std::unique_ptr<MeshSide>> MeshSide::Start(const SidePlan* side,
                                                  Taps taps, int threads,
                                                  std::optional<Fault> fault,
                                                  store::Scan scan) {
  SIGNET_RETURN_IF_ERROR(AdmitNow(*side->plan, side->memory));
  std::unique_ptr<MeshSide> made(new MeshSide(side));
  SIGNET_ASSIGN_OR_RETURN(made->weights_,
                          Load(*side, fault, scan, &made->loaders_));
  std::vector<exec::TapObserver*> observers;
  if (taps == Taps::kOn) {
    const std::vector<Keep> keeps = WhoKeeps(*side);
    for (size_t r = 0; r < keeps.size(); ++r) {
      observers.push_back(
          made->recorders_
              .emplace_back(std::make_unique<Recorder>(
                  side->plan.get(), Rank(static_cast<int32_t>(r)), keeps[r]))
              .get());
    }
  }
  SIGNET_ASSIGN_OR_RETURN(
      made->mesh_, StartRanks(*side->plan, side->programs, made->weights_,
                              threads, observers));
  made->state_.emplace(made->mesh_->MakeSequences(*side->plan));
  std::vector<const step::SealedProgram*> programs;
  for (const auto& rank : side->programs) programs.push_back(&rank.front());
  made->gatherer_.emplace(*side->plan, programs);
  return made;
}

const exec::BoundProgram& MeshSide::Bound(Rank rank, Choice choice) {
  exec::ProgramSet& programs = mesh_->programs(rank);
  return choice.kind == plan::ShapeKind::kDecode
             ? programs.Decode(choice.rows)
             : programs.Prefill(choice.rows);
}

const step::SealedProgram& MeshSide::Sealed(
    Rank rank, const plan::ProgramShape& shape) const {
  const auto& programs = side_->programs[static_cast<size_t>(rank.value())];
  const auto found =
      std::find_if(programs.begin(), programs.end(),
                   [&](const auto& p) { return p.shape() == shape; });
  SIGNET_CHECK(found != programs.end());
  return *found;
}

Result<CallRecord> MeshSide::Prefill(std::span<const int32_t> rest) {
  const Choice choice{plan::ShapeKind::kPrefill,
                      static_cast<int64_t>(rest.size())};
  const auto rows = static_cast<size_t>(Bound(Rank(0), choice).shape().rows);
  return Run(choice, rest.first(std::min(rows, rest.size())));
}

Result<CallRecord> MeshSide::Decode(int32_t id) {
  return Run({plan::ShapeKind::kDecode, 1}, std::span(&id, 1));
}

Result<CallRecord> MeshSide::Run(Choice choice, std::span<const int32_t> ids) {
  CallRecord record{.position = state_->length(kSlot),
                    .rows = static_cast<int64_t>(ids.size()),
                    .pieces = {},
                    .faults = {},
                    .rank_slots = {}};
  std::vector<exec::RowInput> rows;
  std::vector<backend::SamplingRow> sampling;
  for (size_t i = 0; i < ids.size(); ++i) {
    const int64_t position = record.position + static_cast<int64_t>(i);
    rows.push_back({.id = ids[i],
                    .slot = kSlot.value(),
                    .position = static_cast<int32_t>(position)});
    sampling.push_back({.id_bound = static_cast<int32_t>(plan().config().vocab),
                        .position = static_cast<uint32_t>(position + 1)});
  }
  const exec::BoundProgram& program = Bound(Rank(0), choice);
  if (program.shape().logits == plan::LogitsOf::kLastRow) {
    sampling.erase(sampling.begin(), sampling.end() - 1);
  }
  for (size_t r = 0; r < recorders_.size(); ++r) {
    const Rank rank(static_cast<int32_t>(r));
    const exec::BoundProgram& bound = Bound(rank, choice);
    recorders_[r]->Begin(&Sealed(rank, bound.shape()), &bound, record.position);
  }
  state_->Extend(kSlot, record.rows);
  const Result<const exec::BoundProgram*> ran =
      choice.kind == plan::ShapeKind::kDecode
          ? mesh_->Decode(rows, sampling)
          : mesh_->Prefill(choice.rows, rows, sampling);
  if (!ran) return tl::unexpected<Error>(ran.error());
  AddOutputs(choice, &record);
  AddState(record.position, &record);
  if (!recorders_.empty()) {
    std::vector<RankRecord> ranks;
    for (const auto& recorder : recorders_) ranks.push_back(recorder->Take());
    MergeTaps(plan(), std::move(ranks), &record);
  }
  std::stable_sort(record.pieces.begin(), record.pieces.end(),
                   [](const Piece& a, const Piece& b) {
                     return std::pair(a.layer, a.what) <
                            std::pair(b.layer, b.what);
                   });
  return record;
}

CallRecord MeshSide::FinalState() {
  CallRecord record{.position = 0,
                    .rows = state_->length(kSlot),
                    .pieces = {},
                    .faults = {},
                    .rank_slots = {}};
  AddState(0, &record);
  return record;
}

void MeshSide::AddState(int64_t begin, CallRecord* record) {
  std::vector<RankMemory> memory;
  for (int r = 0; r < num_ranks(); ++r) {
    exec::ProgramSet& programs = mesh_->programs(Rank(r));
    const auto look = [&](MemoryClass memory_class) {
      const auto seen = programs.arenas().Look(memory_class);
      if (!seen) {
        record->faults.push_back(
            {"state", -1, record->position, "its memory could not be read"});
      }
      return seen.value_or(std::span<const std::byte>());
    };
    memory.push_back({look(MemoryClass::kKv), look(MemoryClass::kRecurrent),
                      programs.page_table()});
  }
  if (!record->faults.empty()) return;
  std::vector<Piece> state = gatherer_->Gather(
      memory, begin, record->position + record->rows, &record->faults);
  for (Piece& piece : state) record->pieces.push_back(std::move(piece));
}

void MeshSide::AddOutputs(Choice choice, CallRecord* record) {
  const int64_t vocab = plan().config().vocab;
  std::vector<RankOutputs> ranks;
  int64_t rows = 1;
  for (int r = 0; r < num_ranks(); ++r) {
    const exec::BoundProgram& bound = Bound(Rank(r), choice);
    const step::SealedProgram& sealed = Sealed(Rank(r), bound.shape());
    const std::optional<BufferId> id = sealed.FindIo(step::IoRole::kLogits);
    const bool whole = id && sealed.buffers()[*id].shape[1] == vocab;
    const auto io = mesh_->programs(Rank(r)).arenas().Look(MemoryClass::kIo);
    if (whole && !io) {
      record->faults.push_back(
          {"logits", -1, record->position, "they could not be read"});
    }
    const float* const logits =
        whole && io ? reinterpret_cast<const float*>(
                          io->data() + sealed.buffers()[*id].offset_bytes)
                    : nullptr;
    ranks.push_back({logits, bound.io().sampled});
    if (bound.shape().logits == plan::LogitsOf::kEveryRow) rows = record->rows;
  }
  MergeOutputs(ranks, rows, vocab, record);
}

}  // namespace signet::evidence
