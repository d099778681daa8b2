#pragma once
// A sealed program with addresses: a flat list of launches. Made by Bind
// alone (contract S8); immutable; it keeps its weights alive, and the arenas
// must outlive it.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "backend/device.h"
#include "backend/fused_kernels.h"
#include "backend/kernels.h"
#include "base/id.h"
#include "base/pass_key.h"
#include "base/result.h"
#include "collective/communicator.h"
#include "collective/rank_communicators.h"
#include "exec/arenas.h"
#include "exec/lanes.h"
#include "exec/tap.h"
#include "plan/program_shape.h"
#include "step/program.h"
#include "store/weight_version.h"

namespace signet::exec {

/// The collectives of groups of several ranks, over the live rows. A group
/// outlives the program.
struct GroupReduce {
  collective::Communicator* group = nullptr;
  const int32_t* live = nullptr;
  int64_t width = 0;
  const float* x = nullptr;
  float* out = nullptr;
};
struct GroupGather {
  collective::Communicator* group = nullptr;
  const int32_t* live = nullptr;
  int64_t max_rows = 0;  // of the buffers: logits may have one row alone
  int64_t columns = 0;   // of out
  int64_t element_bytes = 0;
  const std::byte* x = nullptr;
  std::byte* out = nullptr;
};
/// Also a band transfer: the source is the root of a group of two.
struct GroupBroadcast {
  collective::Communicator* group = nullptr;
  const int32_t* live = nullptr;
  int64_t max_rows = 0;
  uint64_t row_bytes = 0;
  const std::byte* x = nullptr;  // on the root
  std::byte* out = nullptr;      // null on the source of a transfer
  int root = 0;                  // a member
};

using Launch = std::variant<
    backend::EmbedArgs, backend::NormArgs, backend::RoundArgs,
    backend::ProjectionArgs, backend::ConvArgs, backend::DeltaRuleArgs,
    backend::GatedNormArgs, backend::QkNormRopeArgs, backend::KvAppendArgs,
    backend::AttentionArgs, backend::ActivationArgs, backend::ResidualAddArgs,
    backend::GatedAddArgs, backend::RouteArgs, backend::PrecomputedRouteArgs,
    backend::IndexedGateUpArgs, backend::IndexedDownArgs, backend::ScatterArgs,
    backend::GroupedGateUpArgs, backend::GroupedDownArgs,
    backend::UnscatterArgs, backend::CombineArgs, backend::LogitsArgs,
    backend::SampleArgs, backend::IdentityReduceArgs, backend::NormProductsArgs,
    backend::RoundedProductsArgs, backend::ProductAddArgs,
    backend::DeltaMixArgs, backend::AttendArgs, backend::RouteGateUpArgs,
    backend::MoeTailArgs, backend::MoeBlockArgs, backend::NormRoundArgs,
    backend::AddNormRoundArgs, backend::GatedNormRoundArgs,
    backend::UnscatterActivationArgs, backend::CombineTailArgs,
    backend::CombineNormArgs, GroupReduce, GroupGather, GroupBroadcast>;

/// Where the executor writes the inputs of a call and reads its outputs, on the
/// host; null where the program has none. Logits and outputs of blocks are
/// there after the call on the CPU alone: elsewhere look into the arena.
struct IoViews {
  int32_t* live = nullptr;
  int32_t* ids = nullptr;
  int32_t* slot = nullptr;
  int32_t* position = nullptr;
  backend::SamplingRow* sampling = nullptr;
  int32_t* flags = nullptr;
  const int32_t* sampled = nullptr;
  const float* logits = nullptr;
  int32_t* page_table = nullptr;  // lasting: equal for all shapes of a plan
  float* inv_freq = nullptr;      // lasting
  int32_t* route_ids = nullptr;
  float* route_weights = nullptr;
  float* block_input = nullptr;
  const float* block_output = nullptr;
};

/// What the executor checks run-time scalars against.
struct CallLimits {
  int64_t context = 0;
  int64_t slots = 0;
  int64_t vocab = 0;
  int64_t hidden = 0;
  int64_t top_k = 0;  // of a routed block
  // Of the KV pool, when the program reads one.
  int64_t pages = 0;
  int64_t pages_per_slot = 0;
  int64_t page_tokens = 0;
};

/// The copies around a call on a device with memory of its own.
struct Mirrors {
  std::vector<backend::MirrorPart> inputs;
  std::vector<backend::MirrorPart> outputs;
  backend::MirrorPart tables;  // all of them
};

class BoundProgram {
 public:
  struct Content {
    plan::ProgramShape shape;
    step::Recipe recipe;
    CallLimits limits;
    uint64_t generation;
    std::shared_ptr<const store::WeightVersion> weights;
    const Arenas* arenas;
    IoViews io;
    Mirrors mirrors;
    std::vector<Launch> launches;
    std::vector<LanePlace> places;   // of each of them, or none
    std::vector<std::string> names;  // of the launches, without their layer
    std::optional<TapPoints> taps;
  };
  BoundProgram(PassKey<class Binder>, Content content)
      : content_(std::move(content)) {}

  const plan::ProgramShape& shape() const { return content_.shape; }
  const step::Recipe& recipe() const { return content_.recipe; }
  const CallLimits& limits() const { return content_.limits; }
  uint64_t generation() const { return content_.generation; }
  const Arenas& arenas() const { return *content_.arenas; }
  const IoViews& io() const { return content_.io; }
  std::span<const Launch> launches() const& { return content_.launches; }
  std::span<const Launch> launches() const&& = delete;
  /// Where each launch goes when the program is recorded; empty where all go
  /// one after another.
  std::span<const LanePlace> places() const& { return content_.places; }
  std::span<const LanePlace> places() const&& = delete;
  /// What each launch is, for profiles: its steps and where the last writes.
  std::span<const std::string> names() const& { return content_.names; }
  std::span<const std::string> names() const&& = delete;
  const Mirrors& mirrors() const { return content_.mirrors; }
  /// All its launches as one, once the executor has recorded them; may be null.
  backend::Replay* replay() const { return replay_.get(); }
  void KeepReplay(PassKey<class Executor>,
                  std::unique_ptr<backend::Replay> replay) {
    replay_ = std::move(replay);
  }
  /// Set when bound with an observer: one launch a step.
  const std::optional<TapPoints>& taps() const { return content_.taps; }

 private:
  Content content_;
  std::unique_ptr<backend::Replay> replay_;
};

/// Resolves the program's buffers against one weight version and arenas:
/// checks the contract, each arena's device, size, alignment and generation,
/// and nothing else. `arenas` must outlive the result, and so must the groups
/// of `communicators` (the rank's; none in the mesh of one) and `observer`,
/// which may be null: then no step can be looked into.
Result<BoundProgram> Bind(
    const step::SealedProgram& program, const plan::ModelPlan& plan,
    std::shared_ptr<const store::WeightVersion> weights, const Arenas& arenas,
    TapObserver* observer,
    const collective::RankCommunicators& communicators = {});

}  // namespace signet::exec
