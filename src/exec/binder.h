#pragma once
// The maker of BoundProgram (contract S8): bind.cpp checks the world and
// assembles, resolve.cpp turns each step into its launch, bind_lanes.cpp finds
// which launches may overlap.

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/id.h"
#include "exec/arenas.h"
#include "exec/bound_program.h"
#include "plan/model_plan.h"
#include "step/program.h"
#include "store/weight_version.h"

namespace signet::exec {

class Binder {
 public:
  Binder(const step::SealedProgram& program, const plan::ModelPlan& plan,
         std::shared_ptr<const store::WeightVersion> weights,
         const Arenas& arenas,
         const collective::RankCommunicators& communicators)
      : program_(program),
        plan_(plan),
        weights_(std::move(weights)),
        arenas_(arenas),
        communicators_(communicators) {}

  Result<void> Check() const;
  BoundProgram Build(TapObserver* observer) &&;

 private:
  template <typename T>
  T* Address(BufferId id) const {
    return reinterpret_cast<T*>(Raw(id));
  }
  template <typename T>
  T* Address(std::optional<BufferId> id) const {
    return id ? Address<T>(*id) : nullptr;
  }
  std::byte* Raw(BufferId id) const;
  /// The same buffer where the host reaches it.
  template <typename T>
  T* HostAddress(std::optional<BufferId> id) const {
    return id ? reinterpret_cast<T*>(arenas_.host(Decl(*id).arena) +
                                     Decl(*id).offset_bytes)
              : nullptr;
  }
  Mirrors MirrorsOf() const;
  // The kinds of `count` steps from `first` on, and the last one's output.
  std::string NameOf(size_t first, size_t count) const;
  // Of `count` steps from `first` on: no two buffers share a byte.
  bool AreDisjoint(size_t first, size_t count) const;
  // Where launches of these numbers of steps go; empty where the device gains
  // nothing of it.
  std::vector<LanePlace> PlacesOf(std::span<const size_t> step_counts) const;
  const step::BufferDecl& Decl(BufferId id) const {
    return program_.buffers()[id];
  }
  backend::WeightView Matrix(BufferId id) const;
  backend::InputView Input(BufferId id) const;
  backend::VectorView Vector(BufferId id) const;
  backend::ExpertTableView Experts(BufferId id) const;
  const plan::ExpertView& View(BufferId experts) const;
  backend::KvView Cache(BufferId k, BufferId v, BufferId page_table) const;
  backend::RowForm Form() const;
  backend::ActivationArgs SiluTimes(BufferId gate, BufferId up,
                                    BufferId out) const;
  IoViews Io() const;

  Launch Resolve(const step::Embed& s) const;
  Launch Resolve(const step::Norm& s) const;
  Launch Resolve(const step::Round& s) const;
  Launch Resolve(const step::Projection& s) const;
  Launch Resolve(const step::QkNormRope& s) const;
  Launch Resolve(const step::KvAppend& s) const;
  Launch Resolve(const step::Attention& s) const;
  Launch Resolve(const step::Conv& s) const;
  Launch Resolve(const step::DeltaRule& s) const;
  Launch Resolve(const step::GatedNorm& s) const;
  Launch Resolve(const step::Activation& s) const;
  Launch Resolve(const step::ResidualAdd& s) const;
  Launch Resolve(const step::GatedAdd& s) const;
  Launch Resolve(const step::MoeRoute& s) const;
  Launch Resolve(const step::IndexedMoeGemv& s) const;
  Launch Resolve(const step::MoeScatter& s) const;
  Launch Resolve(const step::GroupedMoeGemm& s) const;
  Launch Resolve(const step::MoeGateUpUnscatter& s) const;
  Launch Resolve(const step::MoeActivation& s) const;
  Launch Resolve(const step::MoeCombine& s) const;
  Launch Resolve(const step::AllReduce& s) const;
  Launch Resolve(const step::Gather& s) const;
  Launch Resolve(const step::Broadcast& s) const;
  Launch Resolve(const step::BandTransfer& s) const;
  Launch Resolve(const step::Logits& s) const;
  Launch Resolve(const step::Sample& s) const;
  // Bytes of one member to its group; `root` has x, the others have out.
  Launch Spread(collective::Communicator* group, std::optional<BufferId> x,
                std::optional<BufferId> out, int root) const;
  // The identity over a group of one.
  Launch Identity(BufferId x, BufferId out, const step::GroupRef& group) const;

  const step::SealedProgram& program_;
  const plan::ModelPlan& plan_;
  std::shared_ptr<const store::WeightVersion> weights_;
  const Arenas& arenas_;
  const collective::RankCommunicators& communicators_;
  backend::Rows rows_;
};

}  // namespace signet::exec
