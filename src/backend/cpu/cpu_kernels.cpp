#include "backend/cpu/cpu_kernels.h"

#include "backend/cpu/ops.h"
#include "backend/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/cpu_kernels.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file once a target.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace signet::backend::cpu {
namespace HWY_NAMESPACE {

const char* TargetHere() { return hwy::TargetName(HWY_TARGET); }

}  // namespace HWY_NAMESPACE
}  // namespace signet::backend::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace signet::backend::cpu {
namespace {

class CpuKernels final : public Kernels {
 public:
  explicit CpuKernels(ThreadPool* pool) : pool_(*pool) {}

  void Embed(LaunchKey, const EmbedArgs& args) override {
    cpu::Embed(pool_, args);
  }
  void Norm(LaunchKey, const NormArgs& args) override {
    cpu::Norm(pool_, args);
  }
  void Projection(LaunchKey, const ProjectionArgs& args) override {
    cpu::Projection(pool_, args);
  }
  void Round(LaunchKey, const RoundArgs& args) override {
    cpu::Round(pool_, args);
  }
  void Conv(LaunchKey, const ConvArgs& args) override {
    cpu::Conv(pool_, args);
  }
  void DeltaRule(LaunchKey, const DeltaRuleArgs& args) override {
    switch (args.form) {
      case DeltaForm::kRecurrent:
        return cpu::DeltaRecurrent(pool_, args);
      case DeltaForm::kChunked:
        return cpu::DeltaChunked(pool_, args);
    }
  }
  void GatedNorm(LaunchKey, const GatedNormArgs& args) override {
    cpu::GatedNorm(pool_, args);
  }
  void QkNormRope(LaunchKey, const QkNormRopeArgs& args) override {
    cpu::QkNormRope(pool_, args);
  }
  void KvAppend(LaunchKey, const KvAppendArgs& args) override {
    cpu::KvAppend(pool_, args);
  }
  void Attention(LaunchKey, const AttentionArgs& args) override {
    cpu::Attention(pool_, args);
  }
  void Activation(LaunchKey, const ActivationArgs& args) override {
    cpu::Activation(pool_, args);
  }
  void ResidualAdd(LaunchKey, const ResidualAddArgs& args) override {
    cpu::ResidualAdd(pool_, args);
  }
  void GatedAdd(LaunchKey, const GatedAddArgs& args) override {
    cpu::GatedAdd(pool_, args);
  }
  void Route(LaunchKey, const RouteArgs& args) override {
    cpu::Route(pool_, args);
  }
  void PrecomputedRoute(LaunchKey, const PrecomputedRouteArgs& args) override {
    cpu::PrecomputedRoute(pool_, args);
  }
  void IndexedGateUp(LaunchKey, const IndexedGateUpArgs& args) override {
    cpu::IndexedGateUp(pool_, args);
  }
  void IndexedDown(LaunchKey, const IndexedDownArgs& args) override {
    cpu::IndexedDown(pool_, args);
  }
  void Scatter(LaunchKey, const ScatterArgs& args) override {
    cpu::Scatter(pool_, args);
  }
  void GroupedGateUp(LaunchKey, const GroupedGateUpArgs& args) override {
    cpu::GroupedGateUp(pool_, args);
  }
  void GroupedDown(LaunchKey, const GroupedDownArgs& args) override {
    cpu::GroupedDown(pool_, args);
  }
  void Unscatter(LaunchKey, const UnscatterArgs& args) override {
    cpu::Unscatter(pool_, args);
  }
  void Combine(LaunchKey, const CombineArgs& args) override {
    cpu::Combine(pool_, args);
  }
  void Logits(LaunchKey, const LogitsArgs& args) override {
    cpu::Logits(pool_, args);
  }
  void Sample(LaunchKey, const SampleArgs& args) override {
    cpu::Sample(pool_, args);
  }
  void IdentityReduce(LaunchKey, const IdentityReduceArgs& args) override {
    cpu::IdentityReduce(pool_, args);
  }

 private:
  ThreadPool& pool_;
};

}  // namespace

HWY_EXPORT(TargetHere);

std::unique_ptr<Kernels> MakeCpuKernels(ThreadPool* pool) {
  return std::make_unique<CpuKernels>(pool);
}

const char* InstructionSet() { return HWY_DYNAMIC_DISPATCH(TargetHere)(); }

}  // namespace signet::backend::cpu
#endif
