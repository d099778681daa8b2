#pragma once
// A scalar fp64 implementation of Qwen3.5 (MoE and dense), one token at a
// time: the judge of the engine's arithmetic. It reads as the definition and
// takes no shortcut; the delta rule is always in its recurrent form. Only the
// rope angle is fp32, because the model defines it so.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/support/oracle_model.h"

namespace signet::testing {

/// What one token gives. The outer vectors have one element a layer; the
/// router's are empty in dense models.
struct OracleStep {
  std::vector<double> logits;                       // [V]
  std::vector<std::vector<double>> residual;        // [H], after the layer
  std::vector<std::vector<int32_t>> router_ids;     // [K], best first
  std::vector<std::vector<double>> router_logits;   // [E]
  std::vector<std::vector<double>> router_weights;  // [K], sum 1
};

/// One sequence. The model must outlive it.
class Oracle {
 public:
  explicit Oracle(const OracleModel& model);

  OracleStep Step(int32_t token);
  /// The same with the experts of each layer given, as a golden lists them:
  /// near ties then cannot part the two runs. Ids and weights returned are
  /// those used.
  OracleStep Step(int32_t token,
                  const std::vector<std::vector<int32_t>>& forced_ids);

  int64_t position() const { return position_; }
  /// DeltaNet state [Hv, dk, dv] of a linear layer.
  const std::vector<double>& Recurrent(int64_t layer) const;
  /// Last inputs of the convolution [C, width - 1], oldest first.
  const std::vector<double>& Conv(int64_t layer) const;
  /// [T, n_kv, d] of a full-attention layer; k after norm and rope.
  const std::vector<double>& Keys(int64_t layer) const;
  const std::vector<double>& Values(int64_t layer) const;

 private:
  using Vector = std::vector<double>;

  const OracleTensor& Weight(int64_t layer, const std::string& name) const;
  Vector Project(int64_t layer, const std::string& name, const Vector& x) const;
  /// In place on x[offset ...): weight is zero-centred, the scale 1 + weight.
  void CentredNorm(Vector& x, int64_t offset, const OracleTensor& weight) const;
  void Rope(Vector& x, int64_t offset) const;

  Vector Attention(int64_t layer, const Vector& x);
  Vector DeltaNet(int64_t layer, const Vector& x);
  Vector Convolve(int64_t layer, const Vector& u);
  Vector DenseMlp(int64_t layer, const std::string& prefix,
                  const Vector& x) const;
  Vector Expert(int64_t layer, int64_t expert, const Vector& x) const;
  Vector Moe(int64_t layer, const Vector& x, const std::vector<int32_t>* forced,
             OracleStep& step) const;
  OracleStep Run(int32_t token,
                 const std::vector<std::vector<int32_t>>* forced_ids);

  const OracleModel& model_;
  const OracleConfig& config_;
  std::vector<float> inverse_frequency_;  // [rotary_dims / 2]
  int64_t position_ = 0;                  // of the next token
  std::map<int64_t, Vector> recurrent_, conv_, keys_, values_;
};

}  // namespace signet::testing
