// S2 of the two mixers: gated full attention and the gated delta rule.

#include "step/rules/types.h"
#include "tensor/delta_chunk.h"

namespace signet::step::rules {

using model::Role;

void TypeRules::operator()(const QkNormRope& s) {
  const int64_t query_width = dims_.heads * config_.head_dim;
  const int64_t key_width = dims_.kv_heads * config_.head_dim;
  Rows("q_gate", s.q_gate, 2 * query_width);
  Rows("k", s.k, key_width);
  Io("inv_freq", s.inv_freq, IoRole::kInvFreq, DType::kF32,
     {config_.rotary_dim / 2});
  Io("position", s.position, IoRole::kPosition, DType::kI32, {rows_});
  Rows("q_out", s.q_out, query_width);
  Rows("k_out", s.k_out, key_width);
  Attribute("heads", s.heads, dims_.heads);
  Attribute("kv_heads", s.kv_heads, dims_.kv_heads);
  Attribute("head_dim", s.head_dim, config_.head_dim);
  Attribute("rotary_dim", s.rotary_dim, config_.rotary_dim);
  Attribute("theta", s.theta, config_.rope_theta);
  Attribute("eps", s.eps, config_.rms_eps);
  const auto* q_norm = Weight("q_norm", s.q_norm, {Role::kQNorm});
  const auto* k_norm = Weight("k_norm", s.k_norm, {Role::kKNorm});
  if (q_norm == nullptr || k_norm == nullptr) return;
  const int32_t layer = q_norm->layer->value();
  if (k_norm->layer != q_norm->layer) {
    Refuse(RejectionCode::kWeightRecipe, "k_norm", s.k_norm,
           "two weights of one step are of two layers", k_norm->name,
           q_norm->name);
  }
  Need("q_gate", s.q_gate, {Value::kQueryGate, layer});
  Need("k", s.k, {Value::kKey, layer});
  Give(s.q_out, {Value::kQuery, layer});
  Give(s.k_out, {Value::kRotatedKey, layer});
}

void TypeRules::operator()(const KvAppend& s) {
  const int64_t width = dims_.kv_heads * config_.head_dim;
  Rows("k", s.k, width);
  Rows("v", s.v, width);
  SlotAndPosition(s.slot, s.position);
  PageTable(s.page_table);
  // The layer is that of the keys; keys of nothing are dataflow's to refuse.
  const Meaning keys = MeaningOf(s.k);
  Need("k", s.k, {Value::kRotatedKey, keys.at});
  if (keys.value != Value::kRotatedKey) return;
  Need("v", s.v, {Value::kValue, keys.at});
  if (const plan::LayerState* state = StateOf(keys.at)) {
    State("k_cache", s.k_cache, state->k);
    State("v_cache", s.v_cache, state->v);
  }
}

void TypeRules::operator()(const Attention& s) {
  const int64_t width = dims_.heads * config_.head_dim;
  Rows("q", s.q, width);
  Rows("q_gate", s.q_gate, 2 * width);
  SlotAndPosition(s.slot, s.position);
  PageTable(s.page_table);
  Rows("out", s.out, width);
  Attribute("heads", s.heads, dims_.heads);
  Attribute("kv_heads", s.kv_heads, dims_.kv_heads);
  Attribute("head_dim", s.head_dim, config_.head_dim);
  const Meaning queries = MeaningOf(s.q);
  Need("q", s.q, {Value::kQuery, queries.at});
  if (queries.value != Value::kQuery) return;
  Need("q_gate", s.q_gate, {Value::kQueryGate, queries.at});
  if (const plan::LayerState* state = StateOf(queries.at)) {
    State("k_cache", s.k_cache, state->k);
    State("v_cache", s.v_cache, state->v);
  }
  Give(s.out, {Value::kAttended, queries.at});
}

void TypeRules::operator()(const Conv& s) {
  const int64_t channels = dims_.conv_channels;
  Rows("u", s.u, channels);
  SlotAndPosition(s.slot, s.position);
  Rows("out", s.out, channels);
  const auto* weight = Weight("weight", s.weight, {Role::kConv});
  if (weight == nullptr) return;
  const int32_t layer = weight->layer->value();
  Need("u", s.u, {Value::kConvInput, layer});
  if (const plan::LayerState* state = StateOf(layer)) {
    State("state", s.state, state->conv);
  }
  Give(s.out, {Value::kConvOutput, layer});
}

void TypeRules::operator()(const DeltaRule& s) {
  const int64_t heads = dims_.linear_value_heads;
  const bool chunked = draft_.shape.kind == plan::ShapeKind::kPrefill;
  Rows("qkv", s.qkv, dims_.conv_channels);
  Rows("b", s.b, heads);
  Rows("a", s.a, heads);
  SlotAndPosition(s.slot, s.position);
  Rows("out", s.out, heads * config_.linear_value_dim);
  Attribute("form", s.form,
            chunked ? DeltaForm::kChunked : DeltaForm::kRecurrent);
  Attribute("key_heads", s.key_heads, dims_.linear_key_heads);
  Attribute("value_heads", s.value_heads, heads);
  Attribute("key_dim", s.key_dim, config_.linear_key_dim);
  Attribute("value_dim", s.value_dim, config_.linear_value_dim);
  Attribute("scratch given", int64_t{s.scratch.has_value()}, int64_t{chunked});
  if (s.scratch) {
    Type("scratch", *s.scratch, DType::kF32,
         {heads, tensor::DeltaScratchFloats(config_.linear_key_dim,
                                            config_.linear_value_dim)});
    Give(*s.scratch, {Value::kScratch, 0});
  }
  const auto* a_log = Weight("a_log", s.a_log, {Role::kALog});
  const auto* dt_bias = Weight("dt_bias", s.dt_bias, {Role::kDtBias});
  if (a_log == nullptr || dt_bias == nullptr) return;
  const int32_t layer = a_log->layer->value();
  if (dt_bias->layer != a_log->layer) {
    Refuse(RejectionCode::kWeightRecipe, "dt_bias", s.dt_bias,
           "two weights of one step are of two layers", dt_bias->name,
           a_log->name);
  }
  Need("qkv", s.qkv, {Value::kConvOutput, layer});
  Need("b", s.b, {Value::kBeta, layer});
  Need("a", s.a, {Value::kDecay, layer});
  if (const plan::LayerState* state = StateOf(layer)) {
    State("state", s.state, state->recurrent);
  }
  Give(s.out, {Value::kDeltaOutput, layer});
}

void TypeRules::operator()(const GatedNorm& s) {
  const int64_t width = dims_.linear_value_heads * config_.linear_value_dim;
  Rows("o", s.o, width);
  Rows("z", s.z, width);
  Rows("out", s.out, width);
  Attribute("heads", s.heads, dims_.linear_value_heads);
  Attribute("head_dim", s.head_dim, config_.linear_value_dim);
  Attribute("eps", s.eps, config_.rms_eps);
  const auto* weight = Weight("weight", s.weight, {Role::kLinearNorm});
  if (weight == nullptr) return;
  const int32_t layer = weight->layer->value();
  Need("o", s.o, {Value::kDeltaOutput, layer});
  Need("z", s.z, {Value::kGateZ, layer});
  Give(s.out, {Value::kDeltaNormed, layer});
}

}  // namespace signet::step::rules
