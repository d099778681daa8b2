// S2 of the residual chain and the products between its points.

#include <algorithm>
#include <array>

#include "step/rules/types.h"

namespace signet::step::rules {

using model::Role;

namespace {

// What a product of each weight reads and what it makes.
struct Product {
  Role role;
  Value input;
  Value output;
};

constexpr std::array<Product, 17> kProducts = {{
    {Role::kQProj, Value::kMixerInput, Value::kQueryGate},
    {Role::kKProj, Value::kMixerInput, Value::kKey},
    {Role::kVProj, Value::kMixerInput, Value::kValue},
    {Role::kOProj, Value::kAttended, Value::kMixed},
    {Role::kInProjQkv, Value::kMixerInput, Value::kConvInput},
    {Role::kInProjZ, Value::kMixerInput, Value::kGateZ},
    {Role::kInProjB, Value::kMixerInput, Value::kBeta},
    {Role::kInProjA, Value::kMixerInput, Value::kDecay},
    {Role::kOutProj, Value::kDeltaNormed, Value::kMixed},
    {Role::kRouter, Value::kMlpInput, Value::kScores},
    {Role::kSharedGate, Value::kMlpInput, Value::kSharedGate},
    {Role::kSharedUp, Value::kMlpInput, Value::kSharedUp},
    {Role::kSharedDown, Value::kSharedAct, Value::kShared},
    {Role::kSharedRouter, Value::kMlpInput, Value::kSharedScale},
    {Role::kMlpGate, Value::kMlpInput, Value::kDenseGate},
    {Role::kMlpUp, Value::kMlpInput, Value::kDenseUp},
    {Role::kMlpDown, Value::kDenseAct, Value::kFed},
}};

}  // namespace

void TypeRules::operator()(const Embed& s) {
  Io("ids", s.ids, IoRole::kIds, DType::kI32, {rows_});
  Rows("out", s.out, config_.hidden);
  Weight("table", s.table, {Role::kEmbedding});
  Give(s.out, {Value::kResidual, 0});
}

void TypeRules::operator()(const Norm& s) {
  Rows("x", s.x, config_.hidden);
  Rows("out", s.out, config_.hidden);
  Attribute("eps", s.eps, config_.rms_eps);
  Attribute("offset", s.offset, 1.0f);  // all three are zero-centred
  const auto* weight =
      Weight("weight", s.weight,
             {Role::kInputNorm, Role::kPostNorm, Role::kFinalNorm});
  if (weight == nullptr) return;
  if (weight->role == Role::kFinalNorm) {
    const auto end = static_cast<int32_t>(2 * config_.layers.size());
    Need("x", s.x, {Value::kResidual, end});
    Give(s.out, {Value::kFinal, 0});
    return;
  }
  const int32_t layer = weight->layer->value();
  const bool mixer = weight->role == Role::kInputNorm;
  Need("x", s.x, {Value::kResidual, 2 * layer + (mixer ? 0 : 1)});
  Give(s.out, {mixer ? Value::kMixerInput : Value::kMlpInput, layer});
}

void TypeRules::operator()(const Round& s) {
  const BufferDecl& x = draft_.buffers[s.x];
  Attribute("rounds in this shape", int64_t{1},
            int64_t{plan_.product_input(draft_.shape) == DType::kBF16});
  Type("x", s.x, DType::kF32, x.shape, x.basis);
  Type("out", s.out, DType::kBF16, x.shape, x.basis);
  Give(s.out, MeaningOf(s.x));
}

void TypeRules::operator()(const Projection& s) {
  const auto* weight = Weight(
      "weight", s.weight,
      {Role::kQProj, Role::kKProj, Role::kVProj, Role::kOProj, Role::kInProjQkv,
       Role::kInProjZ, Role::kInProjB, Role::kInProjA, Role::kOutProj,
       Role::kRouter, Role::kSharedGate, Role::kSharedUp, Role::kSharedDown,
       Role::kSharedRouter, Role::kMlpGate, Role::kMlpUp, Role::kMlpDown});
  if (weight == nullptr) return;
  const Product* product =
      std::find_if(kProducts.begin(), kProducts.end(),
                   [&](const Product& p) { return p.role == weight->role; });
  const int32_t layer = weight->layer->value();
  const Shape& shape = draft_.buffers[s.weight].shape;  // the rank's
  if (weight->role == Role::kRouter) {
    Rows("x", s.x, shape[1], weight->input_basis);
  } else {
    Inputs("x", s.x, rows_, shape[1], weight->input_basis);
  }
  Rows("out", s.out, shape[0]);
  Need("x", s.x, {product->input, layer});
  Give(s.out, {product->output, layer});
}

void TypeRules::operator()(const Activation& s) {
  const Meaning gate = MeaningOf(s.gate);
  const bool shared = gate.value == Value::kSharedGate;
  const int64_t width = shared ? dims_.shared_width : dims_.dense_width;
  const Value want = shared ? Value::kSharedGate : Value::kDenseGate;
  Need("gate", s.gate, {want, gate.at});
  if (gate.value != want) return;
  Rows("gate", s.gate, width);
  Rows("up", s.up, width);
  Inputs("out", s.out, rows_, width);
  Need("up", s.up, {shared ? Value::kSharedUp : Value::kDenseUp, gate.at});
  Give(s.out, {shared ? Value::kSharedAct : Value::kDenseAct, gate.at});
}

void TypeRules::operator()(const ResidualAdd& s) {
  Rows("residual", s.residual, config_.hidden);
  Rows("addend", s.addend, config_.hidden);
  Rows("out", s.out, config_.hidden);
  const Meaning residual = MeaningOf(s.residual);
  Need("residual", s.residual, {Value::kResidual, residual.at});
  if (residual.value != Value::kResidual) return;
  const int32_t layer = residual.at / 2;
  const bool mixer = residual.at % 2 == 0;
  Need("addend", s.addend, {mixer ? Value::kMixed : Value::kFed, layer});
  Give(s.out, {Value::kResidual, residual.at + 1});
}

void TypeRules::operator()(const GatedAdd& s) {
  Rows("addend", s.addend, config_.hidden);
  Rows("gate", s.gate, 1);
  Rows("x", s.x, config_.hidden);
  Rows("out", s.out, config_.hidden);
  const Meaning routed = MeaningOf(s.addend);
  Need("addend", s.addend, {Value::kRouted, routed.at});
  if (routed.value != Value::kRouted) return;
  Need("gate", s.gate, {Value::kSharedScale, routed.at});
  Need("x", s.x, {Value::kShared, routed.at});
  Give(s.out, {Value::kFed, routed.at});
}

}  // namespace signet::step::rules
