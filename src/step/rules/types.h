#pragma once
// S2: one class that walks the program once and knows, for every buffer, what
// it means (`the key rows of layer 3`): the recipe is proven by what each step
// may read and what it then makes. One file a group of steps: types_mixer.cpp,
// types_dense.cpp, types_moe.cpp, types_head.cpp.
//
// A work buffer that nothing has written yet means nothing, and reading it is
// not a finding here: dataflow (S3) refuses it.

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/config.h"
#include "model/manifest.h"
#include "plan/model_plan.h"
#include "step/program.h"
#include "step/rules/routed_blocks.h"
#include "step/rules/rules.h"

namespace signet::step::rules {

/// What the rows of a work buffer are.
enum class Value {
  kUnknown,
  kResidual,  // `at`: 2 * layer before its mixer, 2 * layer + 1 after it
  kMixerInput,
  kQueryGate,
  kKey,
  kValue,
  kQuery,
  kRotatedKey,
  kAttended,
  kConvInput,
  kGateZ,
  kBeta,
  kDecay,
  kConvOutput,
  kDeltaOutput,
  kDeltaNormed,
  kMixed,
  kMlpInput,
  kScores,
  kRouteIds,
  kRouteWeights,
  kExpertRows,  // operands within a routed block; S1 proves their links
  kRouted,
  kSharedGate,
  kSharedUp,
  kSharedAct,
  kShared,
  kSharedScale,
  kDenseGate,
  kDenseUp,
  kDenseAct,
  kFed,
  kFinal,
  kLogits,
  kSampled,
  kScratch,
};

std::string_view Name(Value value);

struct Meaning {
  Value value = Value::kUnknown;
  int32_t at = 0;  // the layer; 0 for values of the whole model
  friend bool operator==(const Meaning&, const Meaning&) = default;
};

class TypeRules {
 public:
  TypeRules(const ProgramDraft& draft, const plan::ModelPlan& plan,
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
  using DType = tensor::DType;
  using Shape = tensor::Shape;
  using Basis = tensor::Basis;

  void CheckLive();
  void CheckDeclaredWeights();
  void CheckDeclaredExperts(BufferId id);
  /// Arena, place and part of a weight or an expert group.
  void CheckHeld(BufferId id, MemoryClass arena, uint64_t offset_bytes,
                 Part part);
  void CheckWeightUses();
  void CheckOutputs();
  /// The program has an output of this role, and it means this.
  void Output(IoRole role, Meaning want);

  /// dtype, shape and basis of an operand of the current step.
  void Type(std::string_view operand, BufferId id, DType dtype,
            const Shape& shape, Basis basis = Basis::kNatural);
  void CheckType(const std::string& where, const BufferDecl& buffer,
                 DType dtype, const Shape& shape, Basis basis);
  /// f32 [B, width].
  void Rows(std::string_view operand, BufferId id, int64_t width,
            Basis basis = Basis::kNatural);
  /// [rows, width] in the dtype that the shape's products read (N1).
  void Inputs(std::string_view operand, BufferId id, int64_t rows,
              int64_t width, Basis basis = Basis::kNatural);
  /// The operand means this, or nothing yet.
  void Need(std::string_view operand, BufferId id, Meaning want);
  void Give(BufferId id, Meaning meaning) { meanings_[id] = meaning; }
  Meaning MeaningOf(BufferId id) const { return meanings_[id]; }
  /// A collective changes how the ranks hold a value, not what it is.
  void Pass(BufferId x, BufferId out);

  /// The entry of a weight operand; null when it is refused.
  const model::WeightEntry* Weight(std::string_view operand, BufferId id,
                                   std::initializer_list<model::Role> roles);
  void Io(std::string_view operand, BufferId id, IoRole role, DType dtype,
          const Shape& shape);
  void SlotAndPosition(BufferId slot, BufferId position);
  void PageTable(BufferId id);
  /// `slot` is the operand's place in the plan's state.
  void State(std::string_view operand, BufferId id,
             const std::optional<plan::StateBuffer>& state);
  /// Null when `layer` is none of the model's.
  const plan::LayerState* StateOf(int32_t layer) const;

  template <typename T>
  void Attribute(std::string_view name, T got, T want);
  void Refuse(RejectionCode code, std::string_view operand, BufferId id,
              std::string message, std::string got, std::string want = {});

  /// The block the current step belongs to, and its owner view.
  const RoutedBlock& block() const {
    return blocks_[static_cast<size_t>(block_of_step_[index_])];
  }
  const plan::ExpertView& view() const;
  int64_t slots() const { return rows_ * view()->top_k; }  // S
  /// M_max of the block; unset for a tile height that bounds nothing.
  std::optional<int64_t> GroupedRows(int64_t tile_rows) const;
  int64_t BlockTileRows() const;
  Meaning OfLayer(Value value) const { return {value, block().layer.value()}; }

  const ProgramDraft& draft_;
  const plan::ModelPlan& plan_;
  const model::ModelConfig& config_;
  const plan::RankDims& dims_;  // proven to exist by S1
  Findings& findings_;
  const int64_t rows_;  // B
  const std::vector<RoutedBlock> blocks_;
  std::vector<int32_t> block_of_step_;
  IdVector<BufferId, Meaning> meanings_;
  IdVector<WeightId, int32_t> weight_uses_;
  size_t index_ = 0;  // of the current step
};

}  // namespace signet::step::rules
