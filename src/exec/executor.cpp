#include "exec/executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <vector>

#include "base/check.h"
#include "base/overload.h"

namespace signet::exec {
namespace {

tl::unexpected<Error> BadInput(const char* message, int64_t got,
                               int64_t limit) {
  return Reject(RejectionCode::kRequestInvalid, "call", message,
                std::to_string(got), fmt::format("under {}", limit));
}

// T3: memory of another generation is neither written nor run.
Result<void> CheckGeneration(const BoundProgram& program) {
  if (program.generation() == program.arenas().generation()) return {};
  return Fail(FailureKind::kState, "call",
              "the program was bound to weights of another generation");
}

Result<void> CheckRows(const BoundProgram& program,
                       std::span<const RowInput> rows) {
  const CallLimits& limits = program.limits();
  const auto count = static_cast<int64_t>(rows.size());
  if (count < 1 || count > program.shape().rows) {
    return BadInput("the shape does not hold this many rows", count,
                    program.shape().rows + 1);
  }
  for (const RowInput& row : rows) {
    if (row.id < 0 || row.id >= limits.vocab) {
      return BadInput("a token id is outside the vocabulary", row.id,
                      limits.vocab);
    }
    if (row.slot < 0 || row.slot >= limits.slots) {
      return BadInput("a sequence slot is out of range", row.slot,
                      limits.slots);
    }
    if (row.position < 0 || row.position >= limits.context) {
      return BadInput("a position is outside the context", row.position,
                      limits.context);
    }
  }
  for (size_t i = 1; i < rows.size(); ++i) {
    if (program.shape().kind == plan::ShapeKind::kPrefill) {
      if (rows[i].slot != rows[0].slot ||
          rows[i].position != rows[i - 1].position + 1) {
        return BadInput("prefill rows are not one run of a sequence",
                        rows[i].position, rows[i - 1].position + 2);
      }
    } else if (rows[i].slot <= rows[i - 1].slot) {
      return BadInput("decode rows are not ascending slots", rows[i].slot,
                      limits.slots);
    }
  }
  return {};
}

// Attention reads every page up to a row's position, and the KV append writes
// the last of them.
Result<void> CheckPages(const BoundProgram& program,
                        std::span<const RowInput> rows) {
  const int32_t* table = program.io().page_table;
  if (table == nullptr) return {};
  const CallLimits& limits = program.limits();
  // The last row of a prefill chunk reaches furthest.
  if (program.shape().kind == plan::ShapeKind::kPrefill) rows = rows.last(1);
  for (const RowInput& row : rows) {
    const int32_t* pages = table + row.slot * limits.pages_per_slot;
    for (int64_t i = 0; i <= row.position / limits.page_tokens; ++i) {
      if (pages[i] >= 0 && pages[i] < limits.pages) continue;
      return BadInput("a page of the sequence is not one of the pool", pages[i],
                      limits.pages);
    }
  }
  return {};
}

// Whether the page table may have changed since the last call: a sequence
// begins, or its new row is the first of a page.
bool MayHaveNewPages(const BoundProgram& program,
                     std::span<const RowInput> rows) {
  if (program.shape().kind == plan::ShapeKind::kPrefill) return true;
  const int64_t page = std::max<int64_t>(program.limits().page_tokens, 1);
  return std::any_of(rows.begin(), rows.end(), [&](const RowInput& row) {
    return row.position % page == 0;
  });
}

// A buffer of outputs may hold fewer rows than the call.
int64_t LiveRows(const auto& launch) {
  return std::min<int64_t>(*launch.live, launch.max_rows);
}

void Launch1(backend::Kernels& kernels, backend::LaunchKey key,
             const Launch& launch) {
  std::visit(
      Overload{
          [&](const backend::EmbedArgs& a) { kernels.Embed(key, a); },
          [&](const backend::NormArgs& a) { kernels.Norm(key, a); },
          [&](const backend::RoundArgs& a) { kernels.Round(key, a); },
          [&](const backend::ProjectionArgs& a) { kernels.Projection(key, a); },
          [&](const backend::ConvArgs& a) { kernels.Conv(key, a); },
          [&](const backend::DeltaRuleArgs& a) { kernels.DeltaRule(key, a); },
          [&](const backend::GatedNormArgs& a) { kernels.GatedNorm(key, a); },
          [&](const backend::QkNormRopeArgs& a) { kernels.QkNormRope(key, a); },
          [&](const backend::KvAppendArgs& a) { kernels.KvAppend(key, a); },
          [&](const backend::AttentionArgs& a) { kernels.Attention(key, a); },
          [&](const backend::ActivationArgs& a) { kernels.Activation(key, a); },
          [&](const backend::ResidualAddArgs& a) {
            kernels.ResidualAdd(key, a);
          },
          [&](const backend::GatedAddArgs& a) { kernels.GatedAdd(key, a); },
          [&](const backend::RouteArgs& a) { kernels.Route(key, a); },
          [&](const backend::PrecomputedRouteArgs& a) {
            kernels.PrecomputedRoute(key, a);
          },
          [&](const backend::IndexedGateUpArgs& a) {
            kernels.IndexedGateUp(key, a);
          },
          [&](const backend::IndexedDownArgs& a) {
            kernels.IndexedDown(key, a);
          },
          [&](const backend::ScatterArgs& a) { kernels.Scatter(key, a); },
          [&](const backend::GroupedGateUpArgs& a) {
            kernels.GroupedGateUp(key, a);
          },
          [&](const backend::GroupedDownArgs& a) {
            kernels.GroupedDown(key, a);
          },
          [&](const backend::UnscatterArgs& a) { kernels.Unscatter(key, a); },
          [&](const backend::CombineArgs& a) { kernels.Combine(key, a); },
          [&](const backend::LogitsArgs& a) { kernels.Logits(key, a); },
          [&](const backend::SampleArgs& a) { kernels.Sample(key, a); },
          [&](const backend::IdentityReduceArgs& a) {
            kernels.IdentityReduce(key, a);
          },
          [&](const backend::NormProductsArgs& a) {
            kernels.fused()->NormProducts(key, a);
          },
          [&](const backend::RoundedProductsArgs& a) {
            kernels.fused()->RoundedProducts(key, a);
          },
          [&](const backend::ProductAddArgs& a) {
            kernels.fused()->ProductAdd(key, a);
          },
          [&](const backend::DeltaMixArgs& a) {
            kernels.fused()->DeltaMix(key, a);
          },
          [&](const backend::AttendArgs& a) {
            kernels.fused()->Attend(key, a);
          },
          [&](const backend::RouteGateUpArgs& a) {
            kernels.fused()->RouteGateUp(key, a);
          },
          [&](const backend::MoeTailArgs& a) {
            kernels.fused()->MoeTail(key, a);
          },
          [&](const backend::MoeBlockArgs& a) {
            kernels.fused()->MoeBlock(key, a);
          },
          [&](const backend::NormRoundArgs& a) {
            kernels.fused()->NormRound(key, a);
          },
          [&](const backend::AddNormRoundArgs& a) {
            kernels.fused()->AddNormRound(key, a);
          },
          [&](const backend::GatedNormRoundArgs& a) {
            kernels.fused()->GatedNormRound(key, a);
          },
          [&](const backend::UnscatterActivationArgs& a) {
            kernels.fused()->UnscatterActivation(key, a);
          },
          [&](const backend::CombineTailArgs& a) {
            kernels.fused()->CombineTail(key, a);
          },
          [&](const backend::CombineNormArgs& a) {
            kernels.fused()->CombineNorm(key, a);
          },
          [&](const GroupReduce& a) {
            a.group->AllReduce(
                key, {.x = a.x, .out = a.out, .elements = *a.live * a.width});
          },
          [&](const GroupGather& a) {
            a.group->Gather(key, {.x = a.x,
                                  .out = a.out,
                                  .rows = LiveRows(a),
                                  .columns = a.columns,
                                  .element_bytes = a.element_bytes});
          },
          [&](const GroupBroadcast& a) {
            a.group->Broadcast(
                key, {.x = a.x,
                      .out = a.out,
                      .bytes = static_cast<uint64_t>(LiveRows(a)) * a.row_bytes,
                      .root = a.root});
          },
      },
      launch);
}

// The group a launch met in; null for a kernel.
const collective::Communicator* GroupOf(const Launch& launch) {
  return std::visit(
      []<typename T>(const T& a) -> const collective::Communicator* {
        if constexpr (requires { a.group->poisoned(); }) {
          return a.group;
        } else {
          return nullptr;
        }
      },
      launch);
}

tl::unexpected<Error> Unmet(const collective::Communicator& group) {
  const int missing = group.missing_member();
  return Fail(FailureKind::kDevice, "mesh",
              missing < 0
                  ? "another rank failed"
                  : fmt::format("member {} of a group of {} did not "
                                "reach a collective within the deadline",
                                missing, group.members()));
}

std::string FlagText(int32_t flags) {
  std::string text;
  const auto add = [&](int32_t bit, const char* what) {
    if ((flags & bit) == 0) return;
    if (!text.empty()) text += ", ";
    text += what;
  };
  add(backend::kFlagNonFinite, "non-finite scores");
  add(backend::kFlagExpertOutOfRange, "an expert id out of range");
  add(backend::kFlagExpertRepeated, "an expert id repeated in a row");
  return text;
}

}  // namespace

void Executor::FeedTables(const BoundProgram& program) {
  const backend::MirrorPart& tables = program.mirrors().tables;
  if (tables.bytes == 0) return;
  device_->Feed(backend::LaunchKey(), {&tables, 1});
}

void Executor::Enqueue(const BoundProgram& program) {
  const backend::LaunchKey key;
  device_->Feed(key, program.mirrors().inputs);
  if (program.places().empty()) {
    for (const Launch& launch : program.launches()) {
      Launch1(device_->kernels(), key, launch);
    }
  } else {
    EnqueueInLanes(program);
  }
  device_->Fetch(key, program.mirrors().outputs);
}

void Executor::EnqueueInLanes(const BoundProgram& program) {
  const backend::LaunchKey key;
  backend::SideLane* side = device_->side_lane(program.shape().rows);
  SIGNET_CHECK(side != nullptr);
  for (size_t i = 0; i < program.launches().size(); ++i) {
    const LanePlace& place = program.places()[i];
    if (place.follows) side->Follow(key, place.lane, *place.follows);
    Launch1(place.lane == backend::Lane::kMain ? device_->kernels()
                                               : side->kernels(),
            key, program.launches()[i]);
    if (place.is_followed) side->Mark(key, place.lane, i);
  }
}

Result<void> Executor::Record(ProgramSet& programs) {
  for (const std::span<BoundProgram> bound :
       {programs.decode(), programs.prefill()}) {
    for (BoundProgram& program : bound) {
      if (program.taps()) continue;
      SIGNET_ASSIGN_OR_RETURN(
          std::unique_ptr<backend::Replay> replay,
          device_->Record(backend::LaunchKey(), [&] { Enqueue(program); }));
      program.KeepReplay(PassKey<Executor>(), std::move(replay));
    }
  }
  return {};
}

void Executor::Show(const BoundProgram& program, size_t step, int64_t live) {
  const TapPoints::Point& point = program.taps()->points[step];
  std::vector<TapBuffer> written = point.written;
  looks_.resize(std::max(looks_.size(), written.size()));
  for (size_t i = 0; i < written.size(); ++i) {
    if (program.mirrors().inputs.empty()) break;  // the host's own memory
    const Bytes size = written[i].shape.StorageBytes(written[i].dtype);
    // Never smaller again: growing anew would write zeros to all of a state.
    looks_[i].resize(
        std::max(looks_[i].size(), static_cast<size_t>(size.value())));
    // A failure is met again by the wait that ends the call.
    if (!device_->Download(static_cast<const std::byte*>(written[i].data), size,
                           looks_[i].data())) {
      return;
    }
    written[i].data = looks_[i].data();
  }
  program.taps()->observer->OnStep(point.kind, written, live);
}

Result<void> Executor::LaunchSteps(const BoundProgram& program, int64_t live) {
  const backend::LaunchKey key;
  device_->Feed(key, program.mirrors().inputs);
  const std::span<const Launch> launches = program.launches();
  for (size_t i = 0; i < launches.size(); ++i) {
    Launch1(device_->kernels(), key, launches[i]);
    if (groups_ != nullptr) groups_->Beat();
    if (device_->HasLaunchFailed()) {
      return Fail(FailureKind::kDevice, device_->facts().identity,
                  fmt::format("launch {} of a call failed", i));
    }
    // No rank continues on what a failed meeting left (X5).
    const collective::Communicator* group = GroupOf(launches[i]);
    if (group != nullptr && group->poisoned()) return Unmet(*group);
    if (program.taps()) Show(program, i, live);
  }
  device_->Fetch(key, program.mirrors().outputs);
  return {};
}

Result<void> Executor::LaunchAll(const BoundProgram& program, int64_t live) {
  const IoViews& io = program.io();
  if (program.replay() != nullptr) {
    program.replay()->Launch(backend::LaunchKey());
    if (device_->HasLaunchFailed()) {
      return Fail(FailureKind::kDevice, device_->facts().identity,
                  "the launch of a call failed");
    }
  } else {
    SIGNET_RETURN_IF_ERROR(LaunchSteps(program, live));
  }
  SIGNET_RETURN_IF_ERROR(device_->Wait(backend::LaunchKey()));
  if (io.flags != nullptr && *io.flags != 0) {
    return Fail(FailureKind::kNumeric, "call",
                "a step met " + FlagText(*io.flags));
  }
  return {};
}

Result<void> Executor::Prepare(const BoundProgram& program,
                               std::span<const RowInput> rows,
                               std::span<const backend::SamplingRow> sampling) {
  SIGNET_RETURN_IF_ERROR(CheckGeneration(program));
  SIGNET_RETURN_IF_ERROR(CheckRows(program, rows));
  SIGNET_RETURN_IF_ERROR(CheckPages(program, rows));
  const size_t logit_rows =
      program.shape().logits == plan::LogitsOf::kEveryRow ? rows.size() : 1;
  if (sampling.size() != logit_rows) {
    return BadInput("not one set of sampling parameters a logits row",
                    static_cast<int64_t>(sampling.size()),
                    static_cast<int64_t>(logit_rows) + 1);
  }
  const IoViews& io = program.io();
  for (size_t i = 0; i < rows.size(); ++i) {
    if (io.ids != nullptr) io.ids[i] = rows[i].id;  // the first stage embeds
    io.slot[i] = rows[i].slot;
    io.position[i] = rows[i].position;
  }
  for (size_t i = 0; i < sampling.size(); ++i) {
    if (sampling[i].id_bound < 1 ||
        sampling[i].id_bound > program.limits().vocab) {
      return BadInput("the bound of drawable ids is out of range",
                      sampling[i].id_bound, program.limits().vocab + 1);
    }
    if (io.sampling != nullptr) io.sampling[i] = sampling[i];
  }
  *io.live = static_cast<int32_t>(rows.size());
  if (io.flags != nullptr) *io.flags = 0;
  if (MayHaveNewPages(program, rows)) FeedTables(program);
  return {};
}

Result<void> Executor::Run(const BoundProgram& program,
                           std::span<const RowInput> rows,
                           std::span<const backend::SamplingRow> sampling) {
  SIGNET_RETURN_IF_ERROR(Prepare(program, rows, sampling));
  return LaunchAll(program, static_cast<int64_t>(rows.size()));
}

Result<std::optional<double>> Executor::TimeBlocks(
    const BoundProgram& program) {
  const backend::LaunchKey key;
  // They read the residual and weights alone: others would meet what launches
  // of other layers left where their inputs were.
  std::vector<const Launch*> blocks;
  for (const Launch& launch : program.launches()) {
    if (std::holds_alternative<backend::MoeBlockArgs>(launch)) {
      blocks.push_back(&launch);
    }
  }
  if (blocks.empty()) return std::optional<double>();
  const std::function<void()> all = [&] {
    for (const Launch* block : blocks) {
      Launch1(device_->kernels(), key, *block);
    }
  };
  SIGNET_ASSIGN_OR_RETURN(const std::vector<double> seconds,
                          device_->Time(key, {&all, 1}));
  return seconds.front() / static_cast<double>(blocks.size());
}

Result<Executor::LaunchTimes> Executor::Profile(
    const BoundProgram& program, std::span<const RowInput> rows,
    std::span<const backend::SamplingRow> sampling) {
  SIGNET_RETURN_IF_ERROR(Prepare(program, rows, sampling));
  const backend::LaunchKey key;
  device_->Feed(key, program.mirrors().inputs);
  std::vector<std::function<void()>> launches;
  for (const Launch& launch : program.launches()) {
    launches.push_back([&] { Launch1(device_->kernels(), key, launch); });
  }
  launches.push_back([] {});
  LaunchTimes times;
  SIGNET_ASSIGN_OR_RETURN(times.launches, device_->Time(key, launches));
  times.nothing = times.launches.back();
  times.launches.pop_back();
  SIGNET_ASSIGN_OR_RETURN(times.block_in_a_row, TimeBlocks(program));
  device_->Fetch(key, program.mirrors().outputs);
  SIGNET_RETURN_IF_ERROR(device_->Wait(key));
  return times;
}

Result<void> Executor::RunBlock(const BoundProgram& program,
                                const BlockInputs& inputs) {
  SIGNET_RETURN_IF_ERROR(CheckGeneration(program));
  const CallLimits& limits = program.limits();
  const IoViews& io = program.io();
  if (inputs.live < 0 || inputs.live > program.shape().rows) {
    return BadInput("the shape does not hold this many rows", inputs.live,
                    program.shape().rows + 1);
  }
  const auto fits = [](size_t size, int64_t rows, int64_t width) {
    return static_cast<int64_t>(size) == rows * width;
  };
  const bool precomputed = io.route_ids != nullptr;
  if (!fits(inputs.x.size(), inputs.live, limits.hidden) ||
      !fits(inputs.route_ids.size(), precomputed ? inputs.live : 0,
            limits.top_k) ||
      inputs.route_weights.size() != inputs.route_ids.size()) {
    return BadInput("the inputs of the block do not fit its rows",
                    static_cast<int64_t>(inputs.x.size()),
                    inputs.live * limits.hidden + 1);
  }
  *io.live = static_cast<int32_t>(inputs.live);
  if (io.flags != nullptr) *io.flags = 0;
  FeedTables(program);
  std::copy(inputs.x.begin(), inputs.x.end(), io.block_input);
  std::copy(inputs.route_ids.begin(), inputs.route_ids.end(), io.route_ids);
  std::copy(inputs.route_weights.begin(), inputs.route_weights.end(),
            io.route_weights);
  return LaunchAll(program, inputs.live);
}

}  // namespace signet::exec
