#include "exec/mesh_executor.h"

#include <fmt/format.h>

#include <atomic>
#include <new>
#include <optional>
#include <thread>
#include <utility>

#include "base/check.h"
#include "collective/group_set.h"
#include "exec/preflight.h"

namespace signet::exec {
namespace {

constexpr int kSpins = 4000;

// What all ranks run next.
struct Job {
  plan::ShapeKind kind = plan::ShapeKind::kDecode;
  int64_t rows_wanted = 0;
  std::span<const RowInput> rows;
  std::span<const backend::SamplingRow> sampling;
};

struct RankDriver {
  std::unique_ptr<backend::Device> device;
  std::unique_ptr<ProgramSet> programs;
  std::optional<Executor> executor;
  std::optional<Error> error;  // of the last job
};

}  // namespace

struct MeshExecutor::State {
  explicit State(size_t num_ranks) : ranks(num_ranks) {}
  // Programs point into the groups, which have memory of the devices.
  ~State() {
    for (RankDriver& rank : ranks) {
      rank.executor.reset();
      rank.programs.reset();
    }
    groups.reset();
  }

  std::unique_ptr<collective::RankGroups> groups;
  std::vector<RankDriver> ranks;
  std::vector<size_t> here;          // ranks that have a driver, ascending
  std::vector<std::thread> threads;  // of all drivers but the first
  Job job;
  std::atomic<uint64_t> turn{0};  // jobs published
  std::atomic<int> running{0};    // drivers inside the current job
  std::atomic<bool> stop{false};
  std::atomic<const RankDriver*> first_failed{nullptr};
  bool poisoned = false;

  RankDriver& first() { return ranks[here.front()]; }

  const BoundProgram& ProgramOf(const RankDriver& rank) const {
    return job.kind == plan::ShapeKind::kDecode
               ? rank.programs->Decode(job.rows_wanted)
               : rank.programs->Prefill(job.rows_wanted);
  }

  void RunRank(RankDriver& rank) {
    rank.error.reset();
    try {
      Result<void> result =
          rank.executor->Run(ProgramOf(rank), job.rows, job.sampling);
      if (result) return;
      rank.error = std::move(result).error();
    } catch (const std::bad_alloc&) {
      // A driver is a thread: nothing above it could catch this.
      rank.error = Failure{FailureKind::kMemory, "mesh", "out of memory"};
    }
    const RankDriver* none = nullptr;
    first_failed.compare_exchange_strong(none, &rank);
    // Peers that still wait for this rank must not.
    groups->PoisonAll();
  }

  // A driver's life: wait for a turn, run it, say so.
  void Drive(RankDriver& rank) {
    uint64_t seen = 0;
    while (true) {
      int spins = 0;
      while (turn.load(std::memory_order_acquire) == seen) {
        if (++spins < kSpins) continue;
        turn.wait(seen, std::memory_order_acquire);
      }
      ++seen;
      if (stop.load(std::memory_order_acquire)) return;
      RunRank(rank);
      running.fetch_sub(1, std::memory_order_release);
    }
  }

  Result<const BoundProgram*> RunJob() {
    if (poisoned) {
      return Fail(FailureKind::kState, "mesh",
                  "a rank failed; the group needs a reset");
    }
    running.store(static_cast<int>(threads.size()), std::memory_order_relaxed);
    turn.fetch_add(1, std::memory_order_release);
    turn.notify_all();
    RunRank(first());
    while (running.load(std::memory_order_acquire) != 0) {
      std::this_thread::yield();
    }
    const RankDriver* failed = first_failed.load(std::memory_order_acquire);
    if (failed == nullptr) return &ProgramOf(first());
    poisoned = true;
    if (const std::optional<Rank> missing = groups->missing_rank()) {
      return Fail(FailureKind::kDevice, "mesh",
                  fmt::format("rank {} did not reach a collective within the "
                              "deadline",
                              missing->value()));
    }
    return tl::unexpected<Error>(*failed->error);
  }
};

MeshExecutor::MeshExecutor(std::unique_ptr<State> state)
    : state_(std::move(state)) {}

MeshExecutor::~MeshExecutor() {
  state_->stop.store(true, std::memory_order_release);
  state_->turn.fetch_add(1, std::memory_order_release);
  state_->turn.notify_all();
  for (std::thread& thread : state_->threads) thread.join();
}

Result<std::unique_ptr<MeshExecutor>> MeshExecutor::Make(
    const plan::ModelPlan& plan,
    std::shared_ptr<const store::WeightVersion> weights,
    std::vector<RankSetup> ranks, const MakeGroups& make_groups,
    std::chrono::milliseconds deadline) {
  SIGNET_CHECK(static_cast<int>(ranks.size()) == plan.mesh().num_ranks());
  std::vector<std::span<const step::SealedProgram>> programs;
  for (const RankSetup& rank : ranks) programs.push_back(rank.programs);
  SIGNET_RETURN_IF_ERROR(Preflight(plan, programs));

  auto state = std::make_unique<State>(ranks.size());
  for (size_t r = 0; r < ranks.size(); ++r) {
    if (ranks[r].device == nullptr) continue;
    state->here.push_back(r);
    state->ranks[r].device = std::move(ranks[r].device);
    SIGNET_RETURN_IF_ERROR(
        state->ranks[r].device->JoinGroups(plan.mesh().num_ranks()));
  }
  SIGNET_CHECK(!state->here.empty());
  if (make_groups) {
    SIGNET_CHECK(state->here.size() == 1);
    SIGNET_ASSIGN_OR_RETURN(state->groups, make_groups(*state->first().device));
  } else {
    state->groups =
        std::make_unique<collective::GroupSet>(plan.mesh(), deadline);
  }
  for (const size_t r : state->here) {
    RankDriver& driver = state->ranks[r];
    SIGNET_ASSIGN_OR_RETURN(
        driver.programs,
        ProgramSet::Make(ranks[r].programs, plan, weights, driver.device.get(),
                         ranks[r].observer,
                         state->groups->of(Rank(static_cast<int32_t>(r)))));
    driver.executor.emplace(driver.device.get(), state->groups.get());
    SIGNET_RETURN_IF_ERROR(driver.executor->Record(*driver.programs));
  }
  // All ranks are bound before any driver starts; the executor stops those
  // that did when one does not.
  std::unique_ptr<MeshExecutor> executor(new MeshExecutor(std::move(state)));
  State* shared = executor->state_.get();
  shared->threads.reserve(shared->here.size());  // a started one has its place
  for (size_t i = 1; i < shared->here.size(); ++i) {
    const size_t r = shared->here[i];
    SIGNET_ASSIGN_OR_RETURN(std::thread driver,
                            shared->ranks[r].device->StartDriver([shared, r] {
                              shared->Drive(shared->ranks[r]);
                            }));
    shared->threads.push_back(std::move(driver));
  }
  return executor;
}

int MeshExecutor::num_ranks() const {
  return static_cast<int>(state_->ranks.size());
}

SequenceState MeshExecutor::MakeSequences(const plan::ModelPlan& plan) {
  std::vector<std::span<int32_t>> page_tables;
  for (const size_t r : state_->here) {
    page_tables.push_back(state_->ranks[r].programs->page_table());
  }
  return SequenceState(plan.pool(), plan.options().batch,
                       std::move(page_tables));
}

Rank MeshExecutor::first_here() const {
  return Rank(static_cast<int32_t>(state_->here.front()));
}

ProgramSet& MeshExecutor::programs(Rank rank) {
  return *state_->ranks[static_cast<size_t>(rank.value())].programs;
}

Result<const BoundProgram*> MeshExecutor::Decode(
    std::span<const RowInput> rows,
    std::span<const backend::SamplingRow> sampling) {
  state_->job = {.kind = plan::ShapeKind::kDecode,
                 .rows_wanted = static_cast<int64_t>(rows.size()),
                 .rows = rows,
                 .sampling = sampling};
  return state_->RunJob();
}

Result<const BoundProgram*> MeshExecutor::Prefill(
    int64_t rest, std::span<const RowInput> rows,
    std::span<const backend::SamplingRow> sampling) {
  state_->job = {.kind = plan::ShapeKind::kPrefill,
                 .rows_wanted = rest,
                 .rows = rows,
                 .sampling = sampling};
  return state_->RunJob();
}

Result<MeshExecutor::CallProfile> MeshExecutor::Profile(
    plan::ShapeKind kind, int64_t rows_wanted, std::span<const RowInput> rows,
    std::span<const backend::SamplingRow> sampling) {
  SIGNET_CHECK(num_ranks() == 1);
  state_->job = {.kind = kind,
                 .rows_wanted = rows_wanted,
                 .rows = rows,
                 .sampling = sampling};
  RankDriver& rank = state_->first();
  const BoundProgram& program = state_->ProgramOf(rank);
  SIGNET_ASSIGN_OR_RETURN(Executor::LaunchTimes times,
                          rank.executor->Profile(program, rows, sampling));
  return CallProfile{&program, std::move(times)};
}

void MeshExecutor::Reset() {
  state_->groups->Reset();
  state_->first_failed.store(nullptr, std::memory_order_relaxed);
  state_->poisoned = false;
}

}  // namespace signet::exec
