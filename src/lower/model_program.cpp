// The whole model of the Qwen3.5 families, layer by layer: a hybrid of gated
// DeltaNet and gated full attention, each followed by a dense or a routed
// feed-forward part.

#include <fmt/format.h>

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
      : config_(plan.config()), builder_(plan, shape, rank, {}) {}

  Result<step::ProgramDraft> Run() && {
    BufferId residual = Embed();
    for (size_t i = 0; i < config_.layers.size(); ++i) {
      const LayerId layer(static_cast<int32_t>(i));
      residual = AppendLayer(layer, residual);
    }
    AppendHead(residual);
    return std::move(builder_).Finish();
  }

 private:
  std::string Named(LayerId layer, const char* name) const {
    return fmt::format("l{}.{}", layer.value(), name);
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
    const BufferId middle = Add(Named(layer, "middle"), residual, mixed);
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
    const BufferId q_rotated = builder_.Work(
        Named(layer, "q_rotated"), config_.num_heads * config_.head_dim);
    const BufferId k_rotated = builder_.Work(
        Named(layer, "k_rotated"), config_.num_kv_heads * config_.head_dim);
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
        .heads = config_.num_heads,
        .kv_heads = config_.num_kv_heads,
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
    const BufferId attended = builder_.Work(
        Named(layer, "attended"), config_.num_heads * config_.head_dim);
    builder_.Append(step::Attention{.q = q_rotated,
                                    .q_gate = q_gate,
                                    .k_cache = k_cache,
                                    .v_cache = v_cache,
                                    .slot = builder_.Slot(),
                                    .position = builder_.Position(),
                                    .page_table = builder_.PageTable(),
                                    .out = attended,
                                    .heads = config_.num_heads,
                                    .kv_heads = config_.num_kv_heads,
                                    .head_dim = config_.head_dim});
    return builder_.Project(Named(layer, "mixed"), attended, Role::kOProj,
                            layer);
  }

  BufferId LinearAttention(LayerId layer, BufferId x) {
    const plan::LayerState& state = StateOf(layer);
    const int64_t heads = config_.linear_value_heads;
    const int64_t width = heads * config_.linear_value_dim;
    const BufferId u =
        builder_.Project(Named(layer, "u"), x, Role::kInProjQkv, layer);
    const BufferId z =
        builder_.Project(Named(layer, "z"), x, Role::kInProjZ, layer);
    const BufferId b =
        builder_.Project(Named(layer, "b"), x, Role::kInProjB, layer);
    const BufferId a =
        builder_.Project(Named(layer, "a"), x, Role::kInProjA, layer);
    const BufferId qkv =
        builder_.Work(Named(layer, "qkv"), config_.conv_channels());
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
                                             config_.linear_value_dim)});
    }
    const BufferId o = builder_.Work(Named(layer, "o"), width);
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
        .key_heads = config_.linear_key_heads,
        .value_heads = heads,
        .key_dim = config_.linear_key_dim,
        .value_dim = config_.linear_value_dim});
    const BufferId normed = builder_.Work(Named(layer, "o_normed"), width);
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

  // silu(x Wg^T) * (x Wu^T) Wd^T.
  BufferId SwiGlu(LayerId layer, BufferId x, const char* prefix, int64_t width,
                  Role gate_role, Role up_role, Role down_role) {
    const auto named = [&](const char* name) {
      return fmt::format("l{}.{}.{}", layer.value(), prefix, name);
    };
    const BufferId gate = builder_.Project(named("gate"), x, gate_role, layer);
    const BufferId up = builder_.Project(named("up"), x, up_role, layer);
    const BufferId act = builder_.Work(named("act"), width);
    builder_.Append(step::Activation{.gate = gate, .up = up, .out = act});
    return builder_.Project(named("down"), act, down_role, layer);
  }

  BufferId Dense(LayerId layer, BufferId y) {
    return SwiGlu(layer, y, "mlp", config_.dense_width, Role::kMlpGate,
                  Role::kMlpUp, Role::kMlpDown);
  }

  BufferId Moe(LayerId layer, BufferId y) {
    const plan::ExpertView* view =
        builder_.plan().experts().View(layer, builder_.rank());
    SIGNET_CHECK(view != nullptr);
    const BufferId scores =
        builder_.Project(Named(layer, "moe.scores"), y, Role::kRouter, layer);
    const RouteBuffers route = AppendSoftmaxRoute(builder_, *view, scores);
    const BufferId reduced =
        builder_.Work(Named(layer, "moe.reduced"), config_.hidden);
    AppendRoutedBlock(builder_, *view, route, y, reduced);
    const BufferId shared =
        SwiGlu(layer, y, "shared", config_.shared_width, Role::kSharedGate,
               Role::kSharedUp, Role::kSharedDown);
    const BufferId gate = builder_.Project(Named(layer, "shared.router"), y,
                                           Role::kSharedRouter, layer);
    const BufferId fed = builder_.Work(Named(layer, "fed"), config_.hidden);
    builder_.Append(step::GatedAdd{
        .addend = reduced, .gate = gate, .x = shared, .out = fed});
    return fed;
  }

  void AppendHead(BufferId residual) {
    const BufferId x = Norm("final", residual, Role::kFinalNorm, std::nullopt);
    const plan::ProgramShape& shape = builder_.shape();
    const step::LogitRows which = shape.logits == plan::LogitsOf::kEveryRow
                                      ? step::LogitRows::kAll
                                      : step::LogitRows::kLast;
    const tensor::Shape table = {shape.logit_rows(), config_.vocab};
    const BufferId logits =
        builder_.Io(IoRole::kLogits, BufferKind::kWork, DType::kF32, table);
    builder_.Append(
        step::Logits{.x = x,
                     .weight = builder_.Weight(Role::kLmHead, std::nullopt),
                     .out = logits,
                     .which = which});
    builder_.Append(step::Sample{
        .logits = logits,
        .params = builder_.Io(IoRole::kSampling, BufferKind::kInput,
                              DType::kI32, {shape.logit_rows(), 8}),
        .scratch = builder_.Work("sample.scratch", DType::kI32, table),
        .ids = builder_.Io(IoRole::kSampled, BufferKind::kWork, DType::kI32,
                           {shape.logit_rows()}),
        .flag = builder_.Flag(),
        .which = which});
  }

  const plan::LayerState& StateOf(LayerId layer) const {
    return builder_.plan().state().layers[static_cast<size_t>(layer.value())];
  }

  const model::ModelConfig& config_;
  ProgramBuilder builder_;
};

}  // namespace

Result<step::ProgramDraft> LowerModel(const plan::ModelPlan& plan,
                                      const plan::ProgramShape& shape,
                                      Rank rank) {
  return ModelLowering(plan, shape, rank).Run();
}

}  // namespace signet::lower
