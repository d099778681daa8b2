#pragma once
// The routed block in both grammars (contract G3), shared by whole models and
// blocks alone.

#include <optional>
#include <string>

#include "base/id.h"
#include "lower/program_builder.h"
#include "plan/expert_plan.h"
#include "step/steps.h"

namespace signet::lower {

enum class Grammar { kIndexed, kGrouped };

/// How a shape computes its routed blocks (G3): the indexed kernels read an
/// expert's weights once a slot, the grouped ones once a tile of rows.
struct BlockForm {
  Grammar grammar;
  int64_t tile_rows;  // bm of the grouped grammar
};

/// The one table, by backend, kind and B.
BlockForm FormOf(const plan::ModelPlan& plan, const plan::ProgramShape& shape);

struct RouteBuffers {
  BufferId ids;
  BufferId weights;
};

/// One unweighted row a slot, in the order of the grammar.
struct Expanded {
  BufferId experts_down;
  BufferId d;
  std::optional<BufferId> inverse_perm;  // grouped
};

/// Appends the block from its route to the down product.
Expanded AppendExpanded(ProgramBuilder& builder, const plan::ExpertView& view,
                        const RouteBuffers& route, BufferId x);

/// Appends the combine; returns the weighted sum over the rank's experts,
/// addends of [B, H], for the caller to reduce.
BufferId AppendCombine(ProgramBuilder& builder, const plan::ExpertView& view,
                       const RouteBuffers& route, const Expanded& expanded);

/// Softmax top-k on `scores` [B, E].
RouteBuffers AppendSoftmaxRoute(ProgramBuilder& builder,
                                const plan::ExpertView& view, BufferId scores);

}  // namespace signet::lower
