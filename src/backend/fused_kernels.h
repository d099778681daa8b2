#pragma once
// Launches that do the work of several consecutive steps. A backend that has
// them offers them beside its Kernels; a fused launch leaves the bits of its
// steps in every buffer named below, and rounds wherever they do (architecture,
// principle 6). The members are the arguments of the steps, linked: the output
// of one is the input of the next.

#include <array>

#include "backend/kernels.h"

namespace signet::backend {

inline constexpr int kMaxFusedProducts = 6;

/// Norm, then products of norm.out, of up to 8 rows, f32 inputs. When
/// `activated`, the last two products are gate and up of `activation`, which
/// follows; gate and up themselves need not be written. norm.out is written
/// when `keep_normed`.
struct NormProductsArgs {
  NormArgs norm;
  std::array<ProjectionArgs, kMaxFusedProducts> products;
  int num_products = 0;
  bool keep_normed = false;
  bool activated = false;
  ActivationArgs activation;  // multiple 1
};

/// Products of the same rounded rows.
struct RoundedProductsArgs {
  std::array<ProjectionArgs, kMaxFusedProducts> products;
  int num_products = 0;
};

/// A product, then residual add: product.out is add.addend and need not be
/// written. Up to 8 rows, f32 inputs.
struct ProductAddArgs {
  ProjectionArgs product;
  ResidualAddArgs add;
};

/// Conv, delta rule (recurrent form), gated norm: conv.out is delta.qkv and
/// delta.out is norm.o; neither need be written. When `rounded`, the round of
/// norm.out follows, and norm.out need not be written either.
struct DeltaMixArgs {
  ConvArgs conv;
  DeltaRuleArgs delta;
  GatedNormArgs norm;
  bool rounded = false;
  RoundArgs round = {};
};

/// q/k norm and rope, KV append, attention: rope.k_out is append.k, rope.q_out
/// is attention.q; neither need be written. Decode shapes.
struct AttendArgs {
  QkNormRopeArgs rope;
  KvAppendArgs append;
  AttentionArgs attention;
};

/// Softmax route, gate and up of the selected experts, activation. Ids and
/// weights are written; gate and up need not be. Up to 8 rows.
struct RouteGateUpArgs {
  RouteArgs route;
  IndexedGateUpArgs gate_up;
  ActivationArgs activation;  // multiple K
};

/// Down of the selected experts, down of the shared expert, combine, identity
/// reduction, gated add, residual add: only add.out is written. Up to 8 rows.
struct MoeTailArgs {
  IndexedDownArgs down;
  ProjectionArgs shared_down;
  CombineArgs combine;        // of down.out
  IdentityReduceArgs reduce;  // of combine.out
  GatedAddArgs gated;         // reduce.out + sigmoid(gate) * shared_down.out
  ResidualAddArgs add;        // of gated.out
};

/// The routed block: NormProducts, one of whose products are the scores, the
/// route and the experts of norm.out, and their tail. Up to 8 rows.
struct MoeBlockArgs {
  NormProductsArgs products;
  RouteGateUpArgs experts;
  MoeTailArgs tail;
};

/// Norm, then the round of norm.out, which is written when `keep_normed`.
struct NormRoundArgs {
  NormArgs norm;
  RoundArgs round;  // multiple 1
  bool keep_normed = false;
};

/// Residual add, norm, and the round of norm.out: add.out is norm.x and always
/// written, for the residual lives on; norm.out is when `keep_normed`.
struct AddNormRoundArgs {
  ResidualAddArgs add;
  NormArgs norm;
  RoundArgs round;  // multiple 1
  bool keep_normed = false;
};

/// Gated norm, then the round of norm.out, which need not be written.
struct GatedNormRoundArgs {
  GatedNormArgs norm;
  RoundArgs round;  // multiple 1
};

/// Grouped rows back to slot order, then their activation; gate and up need not
/// be written. Slots that no grouped row names keep what they hold.
struct UnscatterActivationArgs {
  UnscatterArgs unscatter;
  ActivationArgs activation;  // multiple K
};

/// Combine, identity reduction, gated add, residual add: only add.out is
/// written.
struct CombineTailArgs {
  CombineArgs combine;
  IdentityReduceArgs reduce;  // of combine.out
  GatedAddArgs gated;         // reduce.out + sigmoid(gate) * x
  ResidualAddArgs add;        // of gated.out
};

/// CombineTail, then the norm that reads add.out and the round of norm.out:
/// add.out is written too.
struct CombineNormArgs {
  CombineTailArgs tail;
  NormRoundArgs norm;
};

class FusedKernels {
 public:
  virtual ~FusedKernels() = default;
  virtual void NormProducts(LaunchKey, const NormProductsArgs&) = 0;
  virtual void RoundedProducts(LaunchKey, const RoundedProductsArgs&) = 0;
  virtual void ProductAdd(LaunchKey, const ProductAddArgs&) = 0;
  virtual void DeltaMix(LaunchKey, const DeltaMixArgs&) = 0;
  virtual void Attend(LaunchKey, const AttendArgs&) = 0;
  virtual void RouteGateUp(LaunchKey, const RouteGateUpArgs&) = 0;
  virtual void MoeTail(LaunchKey, const MoeTailArgs&) = 0;
  virtual void MoeBlock(LaunchKey, const MoeBlockArgs&) = 0;
  virtual void NormRound(LaunchKey, const NormRoundArgs&) = 0;
  virtual void AddNormRound(LaunchKey, const AddNormRoundArgs&) = 0;
  virtual void GatedNormRound(LaunchKey, const GatedNormRoundArgs&) = 0;
  virtual void UnscatterActivation(LaunchKey,
                                   const UnscatterActivationArgs&) = 0;
  virtual void CombineTail(LaunchKey, const CombineTailArgs&) = 0;
  virtual void CombineNorm(LaunchKey, const CombineNormArgs&) = 0;
};

}  // namespace signet::backend
