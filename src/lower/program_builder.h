#pragma once
// Writes a ProgramDraft: declares typed buffers, appends steps, and lays the
// buffers out at the end. Every work buffer has one writer.

#include <map>
#include <optional>
#include <string>

#include "base/id.h"
#include "base/result.h"
#include "plan/model_plan.h"
#include "step/program.h"

namespace signet::lower {

/// How the ranks hold an expert group's weights and its rows of width I_r.
step::Part PartOf(const plan::ExpertView& view);
/// How they hold the bookkeeping of slots: a split group's is equal on all.
step::Part SlotPartOf(const plan::ExpertView& view);
/// How they hold down's rows: a split expert's are addends.
step::Part DownPartOf(const plan::ExpertView& view);

class ProgramBuilder {
 public:
  ProgramBuilder(const plan::ModelPlan& plan, const plan::ProgramShape& shape,
                 Rank rank, step::Recipe recipe);

  const plan::ModelPlan& plan() const { return plan_; }
  const plan::ProgramShape& shape() const { return draft_.shape; }
  Rank rank() const { return draft_.rank; }
  int64_t rows() const { return draft_.shape.rows; }  // B
  const plan::RankDims& dims() const { return plan_.dims(draft_.rank); }
  /// Heads, channels, widths of the rank: a shard of tp, or whole without it.
  step::Part DensePart() const;
  step::GroupRef Group(topology::Axis axis) const;

  /// Declared at first use, the same buffer afterwards.
  BufferId Io(step::IoRole role, step::BufferKind kind, tensor::DType dtype,
              tensor::Shape shape);
  BufferId Slot();
  BufferId Position();
  BufferId PageTable();
  BufferId Flag();

  BufferId Weight(model::Role role, std::optional<LayerId> layer);
  BufferId Experts(const plan::ExpertView& view, step::ExpertPart which);
  BufferId State(const std::string& name, const plan::StateBuffer& buffer);
  /// f32 [rows(), width] unless said otherwise.
  BufferId Work(const std::string& name, int64_t width,
                step::Part part = step::Part::Whole());
  BufferId Work(const std::string& name, tensor::DType dtype,
                tensor::Shape shape, step::Part part = step::Part::Whole(),
                tensor::Basis basis = tensor::Basis::kNatural);

  /// The dtype that the products of the shape read, the router's excepted.
  tensor::DType product_input() const {
    return plan_.product_input(draft_.shape);
  }
  /// x as products read it: x itself, or its rounding, made at first use.
  BufferId Input(BufferId x);

  /// x W^T with the weight of a role, into a new buffer `name`: a shard where
  /// the rank holds rows of the weight, addends where it holds columns.
  BufferId Project(const std::string& name, BufferId x, model::Role role,
                   std::optional<LayerId> layer);

  void Append(step::Step step) { draft_.steps.push_back(std::move(step)); }

  /// Offsets and arena sizes. kCapacityOverflow names the first buffer that is
  /// too large.
  Result<step::ProgramDraft> Finish() &&;

 private:
  BufferId Declare(step::BufferDecl decl);
  const plan::ModelPlan& plan_;
  step::ProgramDraft draft_;
  std::map<BufferId, BufferId> rounded_;  // x to Input(x)
};

}  // namespace signet::lower
