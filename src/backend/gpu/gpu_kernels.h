#pragma once
// The GPU kernels: every op of backend/kernels.h and the fused ones, enqueued
// on one stream. Which kernel runs follows from shapes and dtypes alone
// (config.h), never from live rows or routes (contract N3). Members are
// defined one concept a file, beside their kernels. One thread drives it.

#include <string>

#include "backend/fused_kernels.h"
#include "backend/gpu/vendor.h"
#include "backend/kernels.h"

namespace signet::backend::gpu {

class GpuKernels final : public Kernels, public FusedKernels {
 public:
  /// `stream` must outlive the kernels; `num_sms` multiprocessors. `scratch` is
  /// memory that no program sees, kScratchBytes of it: for split sums and the
  /// chunks of the delta rule, and at its end for what the launches of one
  /// block tell each other.
  GpuKernels(Stream stream, int num_sms, void* scratch)
      : stream_(stream), num_sms_(num_sms), scratch_(scratch) {}

  static constexpr size_t kScratchBytes = size_t{256} << 20;
  static constexpr size_t kBlockBytes = size_t{4} << 10;
  static constexpr size_t kSplitBytes = kScratchBytes - kBlockBytes;

  FusedKernels* fused() override { return this; }

  void Embed(LaunchKey, const EmbedArgs&) override;
  void Norm(LaunchKey, const NormArgs&) override;
  void Projection(LaunchKey, const ProjectionArgs&) override;
  void Round(LaunchKey, const RoundArgs&) override;
  void Conv(LaunchKey, const ConvArgs&) override;
  void DeltaRule(LaunchKey, const DeltaRuleArgs&) override;
  void GatedNorm(LaunchKey, const GatedNormArgs&) override;
  void QkNormRope(LaunchKey, const QkNormRopeArgs&) override;
  void KvAppend(LaunchKey, const KvAppendArgs&) override;
  void Attention(LaunchKey, const AttentionArgs&) override;
  void Activation(LaunchKey, const ActivationArgs&) override;
  void ResidualAdd(LaunchKey, const ResidualAddArgs&) override;
  void GatedAdd(LaunchKey, const GatedAddArgs&) override;
  void Route(LaunchKey, const RouteArgs&) override;
  void PrecomputedRoute(LaunchKey, const PrecomputedRouteArgs&) override;
  void IndexedGateUp(LaunchKey, const IndexedGateUpArgs&) override;
  void IndexedDown(LaunchKey, const IndexedDownArgs&) override;
  void Scatter(LaunchKey, const ScatterArgs&) override;
  void GroupedGateUp(LaunchKey, const GroupedGateUpArgs&) override;
  void GroupedDown(LaunchKey, const GroupedDownArgs&) override;
  void Unscatter(LaunchKey, const UnscatterArgs&) override;
  void Combine(LaunchKey, const CombineArgs&) override;
  void Logits(LaunchKey, const LogitsArgs&) override;
  void Sample(LaunchKey, const SampleArgs&) override;
  void IdentityReduce(LaunchKey, const IdentityReduceArgs&) override;

  void NormProducts(LaunchKey, const NormProductsArgs&) override;
  void RoundedProducts(LaunchKey, const RoundedProductsArgs&) override;
  void ProductAdd(LaunchKey, const ProductAddArgs&) override;
  void DeltaMix(LaunchKey, const DeltaMixArgs&) override;
  void Attend(LaunchKey, const AttendArgs&) override;
  void RouteGateUp(LaunchKey, const RouteGateUpArgs&) override;
  void MoeTail(LaunchKey, const MoeTailArgs&) override;
  void MoeBlock(LaunchKey, const MoeBlockArgs&) override;
  void NormRound(LaunchKey, const NormRoundArgs&) override;
  void AddNormRound(LaunchKey, const AddNormRoundArgs&) override;
  void GatedNormRound(LaunchKey, const GatedNormRoundArgs&) override;
  void UnscatterActivation(LaunchKey, const UnscatterActivationArgs&) override;
  void CombineTail(LaunchKey, const CombineTailArgs&) override;
  void CombineNorm(LaunchKey, const CombineNormArgs&) override;

  /// The first launch that the runtime refused, and forgets it; kOk if none.
  Status TakeStatus() {
    const Status status = status_;
    status_ = kOk;
    return status;
  }

 private:
  /// Every launch and attribute call passes through here.
  void Check(Status status) {
    if (status_ == kOk) status_ = status;
  }

  Stream stream_;
  int num_sms_;
  void* scratch_;
  Status status_ = kOk;
};

}  // namespace signet::backend::gpu
