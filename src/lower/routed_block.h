#pragma once
// The routed block in both grammars (contract G3), shared by whole models and
// blocks alone.

#include <string>

#include "base/id.h"
#include "lower/program_builder.h"
#include "plan/expert_plan.h"
#include "step/steps.h"

namespace signet::lower {

enum class Grammar { kIndexed, kGrouped };

/// The one table of which grammar a shape uses: the indexed kernels read an
/// expert's weights once a slot, the grouped ones once a tile of rows.
Grammar GrammarOf(const plan::ProgramShape& shape);

/// Rows of a grouped tile on the CPU (bm).
inline constexpr int64_t kCpuTileRows = 8;

struct RouteBuffers {
  BufferId ids;
  BufferId weights;
};

/// Appends the block from its route to the combine; returns the weighted sum
/// over the rank's experts, addends of [B, H], for the caller to reduce.
BufferId AppendRoutedSum(ProgramBuilder& builder, const plan::ExpertView& view,
                         const RouteBuffers& route, BufferId x);

/// Softmax top-k on `scores` [B, E].
RouteBuffers AppendSoftmaxRoute(ProgramBuilder& builder,
                                const plan::ExpertView& view, BufferId scores);

}  // namespace signet::lower
