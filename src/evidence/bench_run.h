#pragma once
// The programs of a plan on one device, driven call by call: as they serve, or
// with every step looked at, to count the experts that were routed to. Either
// can be timed launch by launch. One thread.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "backend/device.h"
#include "base/id.h"
#include "base/result.h"
#include "evidence/bench_routes.h"
#include "evidence/bench_steps.h"
#include "evidence/side_plan.h"
#include "exec/mesh_executor.h"
#include "exec/sequence_state.h"
#include "exec/tap.h"
#include "store/weight_version.h"

namespace signet::evidence {

class WatchedDevice;

/// The weights of a plan on its one device, for one run after another.
struct BenchModel {
  const SidePlan* side = nullptr;
  int threads = 0;  // of a run
  // Members are destroyed in reverse: the weights, then their device.
  std::unique_ptr<backend::Device> loader;
  std::shared_ptr<const store::WeightVersion> weights;

  /// Whether the programs that serve have launches of several steps.
  bool fuses() const { return loader->kernels().fused() != nullptr; }
};
/// Admits the plan's memory and loads it. `side` must outlive the result.
Result<BenchModel> LoadBenchModel(const SidePlan* side, int threads);

enum class BenchBinding {
  kServed,
  kTapped,  // one launch a step, each looked at
};

class BenchRun final : private exec::TapObserver {
 public:
  /// Binds the one rank; there is room for one run at a time. `model` must
  /// outlive the result.
  static Result<std::unique_ptr<BenchRun>> Start(const BenchModel& model,
                                                 BenchBinding binding);
  ~BenchRun() override;

  BenchBinding binding() const { return binding_; }
  const plan::ModelPlan& plan() const { return *model_.side->plan; }
  /// Who is told of the routes of a tapped run from here on; null: nobody.
  void Watch(RouteCounter* routes) { routes_ = routes; }
  /// Whether calls from here on are timed launch by launch; nothing is looked
  /// at then.
  void set_by_launch(bool by_launch) { by_launch_ = by_launch; }

  /// What ran last.
  struct Call {
    const step::SealedProgram* program = nullptr;
    const exec::BoundProgram* bound = nullptr;
    CallRows rows;
    double seconds = 0;  // by the host's clock, unless by launch
    std::optional<exec::Executor::LaunchTimes> times;  // if by launch
  };
  const Call& last() const { return last_; }

  /// The next chunk of a prompt of which `rest` is left.
  struct Chunk {
    int64_t rows;
    int32_t drawn;
  };
  Result<Chunk> Prefill(SequenceSlot slot, std::span<const int32_t> rest);
  /// One token more for each of slots 0, 1, ...; gives what they draw.
  Result<std::vector<int32_t>> Decode(std::span<const int32_t> ids);
  /// Ends all sequences.
  void Clear();

 private:
  BenchRun(const BenchModel& model, BenchBinding binding)
      : model_(model), binding_(binding) {}
  // Lets the device show what routes write.
  void ShowRoutes();
  const step::SealedProgram& Sealed(const plan::ProgramShape& shape) const;
  void Begin(const exec::BoundProgram& bound, int64_t live);
  Result<void> Launch(plan::ShapeKind kind, int64_t rows_wanted,
                      std::span<const exec::RowInput> rows,
                      std::span<const backend::SamplingRow> sampling);
  void OnStep(std::string_view kind, std::span<const exec::TapBuffer> written,
              int64_t live_rows) override;
  backend::SamplingRow SamplingAt(int64_t position) const;

  const BenchModel& model_;
  BenchBinding binding_;
  std::unique_ptr<exec::MeshExecutor> mesh_;
  WatchedDevice* device_ = nullptr;  // of mesh_
  std::optional<exec::SequenceState> state_;
  RouteCounter* routes_ = nullptr;
  bool by_launch_ = false;
  Call last_;
  size_t step_ = 0;
};

}  // namespace signet::evidence
