// The whole model of the Qwen3.5 families, layer by layer: a hybrid of gated
// DeltaNet and gated full attention, each followed by a dense or a routed
// feed-forward part.

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>

#include "base/check.h"
#include "lower/lower.h"
#include "lower/program_builder.h"
#include "lower/routed_block.h"
#include "tensor/delta_chunk.h"

namespace signet::lower {
namespace {

using model::Role;
using step::BufferKind;
using step::IoRole;
using tensor::DType;

class ModelLowering {
 public:
  ModelLowering(const plan::ModelPlan& plan, const plan::ProgramShape& shape,
                Rank rank)
      : config_(plan.config()),
        dims_(plan.dims(rank)),
        builder_(plan, shape, rank, {}) {}

  // The layers of the rank's stage; the residual comes from the stage before
  // and goes to the one after.
  Result<step::ProgramDraft> Run() && {
    const LayerId begin(static_cast<int32_t>(dims_.first_layer));
    BufferId residual = dims_.first_stage ? Embed() : Receive(begin);
    for (int64_t i = dims_.first_layer; i < dims_.end_layer; ++i) {
      residual = AppendLayer(LayerId(static_cast<int32_t>(i)), residual);
    }
    if (dims_.last_stage) {
      AppendHead(residual);
    } else {
      Send(LayerId(static_cast<int32_t>(dims_.end_layer)), residual);
      AppendToken(std::nullopt);
    }
    return std::move(builder_).Finish();
  }

 private:
  std::string Named(LayerId layer, const char* name) const {
    return fmt::format("l{}.{}", layer.value(), name);
  }

  std::string Named(LayerId layer, const char* part, const char* name) const {
    return fmt::format("l{}.{}.{}", layer.value(), part, name);
  }

  BufferId Embed() {
    const BufferId ids = builder_.Io(IoRole::kIds, BufferKind::kInput,
                                     DType::kI32, {builder_.rows()});
    const BufferId out = builder_.Work("embedded", config_.hidden);
    builder_.Append(
        step::Embed{.ids = ids,
                    .table = builder_.Weight(Role::kEmbedding, std::nullopt),
                    .out = out});
    return out;
  }

  ScheduleRow RowOf(plan::CollectiveUse use,
                    std::optional<LayerId> layer) const {
    const auto row = builder_.plan().schedule().Find(use, layer);
    SIGNET_CHECK(row.has_value());
    return *row;
  }

  // Source and target of the residual that enters `layer`'s stage.
  step::GroupRef Neighbours(int step_from_here) const {
    step::GroupRef group = builder_.Group(topology::Axis::kPp);
    const auto here =
        std::find(group.ranks.begin(), group.ranks.end(), builder_.rank());
    const auto source = step_from_here < 0 ? here - 1 : here;
    group.ranks = {*source, *(source + 1)};
    return group;
  }

  BufferId Receive(LayerId layer) {
    const BufferId out = builder_.Work("received", config_.hidden);
    builder_.Append(step::BandTransfer{
        .out = out,
        .group = Neighbours(-1),
        .row = RowOf(plan::CollectiveUse::kResidual, layer)});
    return out;
  }

  void Send(LayerId layer, BufferId residual) {
    builder_.Append(step::BandTransfer{
        .x = residual,
        .group = Neighbours(1),
        .row = RowOf(plan::CollectiveUse::kResidual, layer)});
  }

  // Addends over the ranks of the row's axis to their sum.
  BufferId Reduce(const std::string& name, BufferId addends, ScheduleRow row) {
    const topology::Axis axis = builder_.plan().schedule().rows()[row].axis;
    const BufferId out = builder_.Work(name, config_.hidden);
    builder_.Append(
        step::AllReduce{.x = addends,
                        .out = out,
                        .group = builder_.Group(axis),
                        .row = row,
                        .elements = builder_.rows() * config_.hidden});
    return out;
  }

  // Column products end in addends under tp, and in their sum without it.
  BufferId ReduceDense(const std::string& name, BufferId made,
                       plan::CollectiveUse use, LayerId layer) {
    if (dims_.parts == 1) return made;
    return Reduce(name, made, RowOf(use, layer));
  }

  // A zero-centred norm over the hidden dimension.
  BufferId Norm(const std::string& name, BufferId x, Role role,
                std::optional<LayerId> layer) {
    const BufferId out = builder_.Work(name, config_.hidden);
    builder_.Append(step::Norm{.x = x,
                               .weight = builder_.Weight(role, layer),
                               .out = out,
                               .eps = config_.rms_eps,
                               .offset = 1.0f});
    return out;
  }

  BufferId Add(const std::string& name, BufferId residual, BufferId addend) {
    const BufferId out = builder_.Work(name, config_.hidden);
    builder_.Append(
        step::ResidualAdd{.residual = residual, .addend = addend, .out = out});
    return out;
  }

  BufferId AppendLayer(LayerId layer, BufferId residual) {
    const model::LayerConfig& kind =
        config_.layers[static_cast<size_t>(layer.value())];
    const BufferId x =
        Norm(Named(layer, "x"), residual, Role::kInputNorm, layer);
    const BufferId mixed = kind.mixer == model::MixerKind::kFullAttention
                               ? FullAttention(layer, x)
                               : LinearAttention(layer, x);
    const BufferId middle =
        Add(Named(layer, "middle"), residual,
            ReduceDense(Named(layer, "mixed.reduced"), mixed,
                        plan::CollectiveUse::kMixer, layer));
    const BufferId y = Norm(Named(layer, "y"), middle, Role::kPostNorm, layer);
    const BufferId fed =
        kind.mlp == model::MlpKind::kMoe ? Moe(layer, y) : Dense(layer, y);
    return Add(Named(layer, "residual"), middle, fed);
  }

  BufferId FullAttention(LayerId layer, BufferId x) {
    const plan::LayerState& state = StateOf(layer);
    const BufferId q_gate =
        builder_.Project(Named(layer, "q_gate"), x, Role::kQProj, layer);
    const BufferId k =
        builder_.Project(Named(layer, "k"), x, Role::kKProj, layer);
    const BufferId v =
        builder_.Project(Named(layer, "v"), x, Role::kVProj, layer);
    const BufferId q_rotated =
        Heads(Named(layer, "q_rotated"), dims_.heads, config_.head_dim);
    const BufferId k_rotated =
        Heads(Named(layer, "k_rotated"), dims_.kv_heads, config_.head_dim);
    builder_.Append(step::QkNormRope{
        .q_gate = q_gate,
        .k = k,
        .q_norm = builder_.Weight(Role::kQNorm, layer),
        .k_norm = builder_.Weight(Role::kKNorm, layer),
        .inv_freq = builder_.Io(IoRole::kInvFreq, BufferKind::kConstant,
                                DType::kF32, {config_.rotary_dim / 2}),
        .position = builder_.Position(),
        .q_out = q_rotated,
        .k_out = k_rotated,
        .heads = dims_.heads,
        .kv_heads = dims_.kv_heads,
        .head_dim = config_.head_dim,
        .rotary_dim = config_.rotary_dim,
        .theta = config_.rope_theta,
        .eps = config_.rms_eps});
    const BufferId k_cache = builder_.State(Named(layer, "k_cache"), *state.k);
    const BufferId v_cache = builder_.State(Named(layer, "v_cache"), *state.v);
    builder_.Append(step::KvAppend{.k = k_rotated,
                                   .v = v,
                                   .slot = builder_.Slot(),
                                   .position = builder_.Position(),
                                   .page_table = builder_.PageTable(),
                                   .k_cache = k_cache,
                                   .v_cache = v_cache});
    const BufferId attended =
        Heads(Named(layer, "attended"), dims_.heads, config_.head_dim);
    builder_.Append(step::Attention{.q = q_rotated,
                                    .q_gate = q_gate,
                                    .k_cache = k_cache,
                                    .v_cache = v_cache,
                                    .slot = builder_.Slot(),
                                    .position = builder_.Position(),
                                    .page_table = builder_.PageTable(),
                                    .out = attended,
                                    .heads = dims_.heads,
                                    .kv_heads = dims_.kv_heads,
                                    .head_dim = config_.head_dim});
    return builder_.Project(Named(layer, "mixed"), attended, Role::kOProj,
                            layer);
  }

  BufferId LinearAttention(LayerId layer, BufferId x) {
    const plan::LayerState& state = StateOf(layer);
    const int64_t heads = dims_.linear_value_heads;
    const BufferId u =
        builder_.Project(Named(layer, "u"), x, Role::kInProjQkv, layer);
    const BufferId z =
        builder_.Project(Named(layer, "z"), x, Role::kInProjZ, layer);
    const BufferId b =
        builder_.Project(Named(layer, "b"), x, Role::kInProjB, layer);
    const BufferId a =
        builder_.Project(Named(layer, "a"), x, Role::kInProjA, layer);
    const BufferId qkv = builder_.Work(Named(layer, "qkv"), dims_.conv_channels,
                                       builder_.DensePart());
    builder_.Append(step::Conv{
        .u = u,
        .weight = builder_.Weight(Role::kConv, layer),
        .slot = builder_.Slot(),
        .position = builder_.Position(),
        .state = builder_.State(Named(layer, "conv_state"), *state.conv),
        .out = qkv});
    const bool chunked = builder_.shape().kind == plan::ShapeKind::kPrefill;
    std::optional<BufferId> scratch;
    if (chunked) {
      scratch = builder_.Work(
          Named(layer, "scratch"), DType::kF32,
          {heads, tensor::DeltaScratchFloats(config_.linear_key_dim,
                                             config_.linear_value_dim)},
          builder_.DensePart());
    }
    const BufferId o =
        Heads(Named(layer, "o"), heads, config_.linear_value_dim);
    builder_.Append(step::DeltaRule{
        .qkv = qkv,
        .b = b,
        .a = a,
        .a_log = builder_.Weight(Role::kALog, layer),
        .dt_bias = builder_.Weight(Role::kDtBias, layer),
        .slot = builder_.Slot(),
        .position = builder_.Position(),
        .state = builder_.State(Named(layer, "delta_state"), *state.recurrent),
        .scratch = scratch,
        .out = o,
        .form =
            chunked ? step::DeltaForm::kChunked : step::DeltaForm::kRecurrent,
        .key_heads = dims_.linear_key_heads,
        .value_heads = heads,
        .key_dim = config_.linear_key_dim,
        .value_dim = config_.linear_value_dim});
    const BufferId normed =
        Heads(Named(layer, "o_normed"), heads, config_.linear_value_dim);
    builder_.Append(
        step::GatedNorm{.o = o,
                        .z = z,
                        .weight = builder_.Weight(Role::kLinearNorm, layer),
                        .out = normed,
                        .heads = heads,
                        .head_dim = config_.linear_value_dim,
                        .eps = config_.rms_eps});
    return builder_.Project(Named(layer, "mixed"), normed, Role::kOutProj,
                            layer);
  }

  // silu(x Wg^T) * (x Wu^T).
  BufferId SwiGlu(LayerId layer, BufferId x, const char* prefix, int64_t width,
                  Role gate_role, Role up_role) {
    const BufferId gate =
        builder_.Project(Named(layer, prefix, "gate"), x, gate_role, layer);
    const BufferId up =
        builder_.Project(Named(layer, prefix, "up"), x, up_role, layer);
    const BufferId act =
        builder_.Work(Named(layer, prefix, "act"), builder_.product_input(),
                      {builder_.rows(), width}, builder_.DensePart());
    builder_.Append(step::Activation{.gate = gate, .up = up, .out = act});
    return act;
  }

  BufferId Dense(LayerId layer, BufferId y) {
    const BufferId act = SwiGlu(layer, y, "mlp", dims_.dense_width,
                                Role::kMlpGate, Role::kMlpUp);
    const BufferId down = builder_.Project(Named(layer, "mlp", "down"), act,
                                           Role::kMlpDown, layer);
    return ReduceDense(Named(layer, "mlp.reduced"), down,
                       plan::CollectiveUse::kDenseMlp, layer);
  }

  // The shared expert enters once: as addends before the one reduction under
  // tp, after it where every rank computes it whole. What reads y stands
  // together; so do the down products of the indexed grammar, which a launch
  // may take together, while in the grouped one nothing that the shared expert
  // needs is written again before it ends, so that it may run beside the rest.
  BufferId Moe(LayerId layer, BufferId y) {
    const plan::ExpertView* view =
        builder_.plan().experts().View(layer, builder_.rank());
    SIGNET_CHECK(view != nullptr);
    builder_.Input(y);  // beside the norm, not behind the router
    const BufferId scores =
        builder_.Project(Named(layer, "moe.scores"), y, Role::kRouter, layer);
    const BufferId gate = builder_.Project(Named(layer, "shared.router"), y,
                                           Role::kSharedRouter, layer);
    const BufferId act = SwiGlu(layer, y, "shared", dims_.shared_width,
                                Role::kSharedGate, Role::kSharedUp);
    BufferId shared = step::kNoBuffer;
    const auto down = [&] {
      shared = builder_.Project(Named(layer, "shared", "down"), act,
                                Role::kSharedDown, layer);
    };
    const bool grouped =
        FormOf(builder_.plan(), builder_.shape()).grammar == Grammar::kGrouped;
    if (grouped) down();
    const RouteBuffers route = AppendSoftmaxRoute(builder_, *view, scores);
    const Expanded expanded = AppendExpanded(builder_, *view, route, y);
    if (!grouped) down();
    BufferId routed = AppendCombine(builder_, *view, route, expanded);
    const bool tp = dims_.parts > 1;
    if (!tp) {
      routed = Reduce(Named(layer, "moe.reduced"), routed, (*view)->collective);
    }
    const BufferId fed = builder_.Work(
        Named(layer, "fed"), config_.hidden,
        tp ? step::Part::Partial(topology::Axis::kTp) : step::Part::Whole());
    builder_.Append(step::GatedAdd{
        .addend = routed, .gate = gate, .x = shared, .out = fed});
    if (!tp) return fed;
    return Reduce(Named(layer, "fed.reduced"), fed, (*view)->collective);
  }

  BufferId Heads(const std::string& name, int64_t heads, int64_t head_dim) {
    return builder_.Work(name, heads * head_dim, builder_.DensePart());
  }

  void AppendHead(BufferId residual) {
    const BufferId x = Norm("final", residual, Role::kFinalNorm, std::nullopt);
    const plan::ProgramShape& shape = builder_.shape();
    const step::LogitRows which = shape.logits == plan::LogitsOf::kEveryRow
                                      ? step::LogitRows::kAll
                                      : step::LogitRows::kLast;
    const int64_t rows = shape.logit_rows();
    const tensor::Shape table = {rows, config_.vocab};
    const BufferId logits =
        builder_.Io(IoRole::kLogits, BufferKind::kWork, DType::kF32, table);
    const bool tp = dims_.parts > 1;
    const BufferId block =
        tp ? builder_.Work("logits.block", DType::kF32, {rows, dims_.vocab},
                           builder_.DensePart())
           : logits;
    builder_.Append(
        step::Logits{.x = builder_.Input(x),
                     .weight = builder_.Weight(Role::kLmHead, std::nullopt),
                     .out = block,
                     .which = which});
    if (tp) {
      builder_.Append(step::Gather{
          .x = block,
          .out = logits,
          .group = builder_.Group(topology::Axis::kTp),
          .row = RowOf(plan::CollectiveUse::kLogits, std::nullopt)});
    }
    AppendToken(logits);
  }

  // The ids drawn from `logits`, on every rank. Where a row of the schedule
  // carries them, one rank of its group draws and the others receive (X7).
  void AppendToken(std::optional<BufferId> logits) {
    const plan::Schedule& schedule = builder_.plan().schedule();
    const auto along_tp =
        dims_.last_stage
            ? schedule.Find(plan::CollectiveUse::kTokenAlongTp, std::nullopt)
            : std::nullopt;
    const auto along_pp =
        schedule.Find(plan::CollectiveUse::kTokenAlongPp, std::nullopt);
    std::optional<BufferId> ids;
    if (dims_.samples()) ids = Draw(*logits, !along_tp && !along_pp);
    if (along_tp) {
      const step::GroupRef group = builder_.Group(topology::Axis::kTp);
      ids = Broadcast(ids, group, *along_tp, group.ranks.front(), !along_pp);
    }
    if (along_pp) {
      const step::GroupRef group = builder_.Group(topology::Axis::kPp);
      Broadcast(ids, group, *along_pp, group.ranks.back(), true);
    }
  }

  // [logit rows] i32: the program's output, or on its way there.
  BufferId Ids(const char* name, bool is_output) {
    const tensor::Shape shape = {builder_.shape().logit_rows()};
    if (!is_output) return builder_.Work(name, DType::kI32, shape);
    return builder_.Io(IoRole::kSampled, BufferKind::kWork, DType::kI32, shape);
  }

  BufferId Draw(BufferId logits, bool is_output) {
    const plan::ProgramShape& shape = builder_.shape();
    const tensor::Shape table = {shape.logit_rows(), config_.vocab};
    const BufferId ids = Ids("drawn", is_output);
    builder_.Append(step::Sample{
        .logits = logits,
        .params = builder_.Io(IoRole::kSampling, BufferKind::kInput,
                              DType::kI32, {shape.logit_rows(), 8}),
        .scratch = builder_.Work("sample.scratch", DType::kI32, table),
        .ids = ids,
        .flag = builder_.Flag(),
        .which = shape.logits == plan::LogitsOf::kEveryRow
                     ? step::LogitRows::kAll
                     : step::LogitRows::kLast});
    return ids;
  }

  BufferId Broadcast(std::optional<BufferId> ids, const step::GroupRef& group,
                     ScheduleRow row, Rank root, bool is_output) {
    const BufferId out = Ids("received.ids", is_output);
    builder_.Append(step::Broadcast{
        .x = ids, .out = out, .group = group, .row = row, .root = root});
    return out;
  }

  const plan::LayerState& StateOf(LayerId layer) const {
    return builder_.plan()
        .state(builder_.rank())
        .layers[static_cast<size_t>(layer.value())];
  }

  const model::ModelConfig& config_;
  const plan::RankDims& dims_;
  ProgramBuilder builder_;
};

}  // namespace

Result<step::ProgramDraft> LowerModel(const plan::ModelPlan& plan,
                                      const plan::ProgramShape& shape,
                                      Rank rank) {
  return ModelLowering(plan, shape, rank).Run();
}

}  // namespace signet::lower
