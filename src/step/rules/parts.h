#pragma once
// S3: how the ranks hold each operand. Every buffer declares its part, so each
// step is checked alone: its operands must be what it accepts, and what it
// makes must be what its results declare.

#include <cstdint>
#include <string_view>
#include <utility>

#include "step/program.h"
#include "step/rules/rules.h"

namespace signet::step::rules {

class PartRules {
 public:
  PartRules(const ProgramDraft& draft, const MeshContext& context,
            Findings& findings);
  void Run();

  void operator()(const Embed& s);
  void operator()(const Norm& s);
  void operator()(const Round& s);
  void operator()(const Projection& s);
  void operator()(const QkNormRope& s);
  void operator()(const KvAppend& s);
  void operator()(const Attention& s);
  void operator()(const Conv& s);
  void operator()(const DeltaRule& s);
  void operator()(const GatedNorm& s);
  void operator()(const Activation& s);
  void operator()(const ResidualAdd& s);
  void operator()(const GatedAdd& s);
  void operator()(const MoeRoute& s);
  void operator()(const IndexedMoeGemv& s);
  void operator()(const MoeScatter& s);
  void operator()(const GroupedMoeGemm& s);
  void operator()(const MoeGateUpUnscatter& s);
  void operator()(const MoeActivation& s);
  void operator()(const MoeCombine& s);
  void operator()(const AllReduce& s);
  void operator()(const Gather& s);
  void operator()(const Broadcast& s);
  void operator()(const BandTransfer& s);
  void operator()(const Logits& s);
  void operator()(const Sample& s);

 private:
  struct Named {
    std::string_view operand;
    BufferId id;
  };
  Part Of(BufferId id) const { return draft_.buffers[id].part; }

  /// The operand must be held as `want`.
  bool Take(Named operand, Part want);
  bool TakeWhole(Named operand) { return Take(operand, Part::Whole()); }
  /// The operand is whole or a shard; never addends.
  bool TakeSettled(Named operand);
  /// The result must declare `made`.
  void Make(Named result, Part made);
  /// out = a + b: both whole, or addends of one sum.
  void Sum(Named a, Named b, Named out);
  void CheckEnd();

  // How the ranks hold the experts, the slots' bookkeeping and down's rows.
  Part ExpertShare() const;
  Part SlotShare() const;
  Part DownShare() const;
  void Experts(BufferId id) { Take({"experts", id}, ExpertShare()); }

  void Refuse(RejectionCode code, Named operand, std::string message, Part got,
              Part want);

  /// What becomes of a buffer. One fault is one finding: a wrong declaration
  /// excuses its readers, a refused reading excuses the end.
  struct Fate {
    int32_t consumed = 0;   // a partial: reductions and sums it entered
    bool misread = false;   // a step that cannot read it was refused
    bool misnamed = false;  // its declared part was refused
  };
  void Consume(BufferId id) { ++fates_[id].consumed; }

  const ProgramDraft& draft_;
  const MeshContext& context_;
  Findings& findings_;
  IdVector<BufferId, Fate> fates_;
  IdVector<BufferId, uint8_t> reduced_;  // written by an all-reduce
  size_t index_ = 0;                     // of the current step
};

}  // namespace signet::step::rules
