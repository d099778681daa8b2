#pragma once
// The only author of programs: a plan and a shape in, a ProgramDraft out, its
// buffers laid out. Sees expert groups only as plan::ExpertView. Pure; any
// thread.

#include "base/id.h"
#include "base/result.h"
#include "plan/model_plan.h"
#include "step/program.h"

namespace signet::lower {

/// The whole model on one rank in one shape of the plan. kCapacityOverflow
/// when a buffer of the shape does not fit 64 bits.
Result<step::ProgramDraft> LowerModel(const plan::ModelPlan& plan,
                                      const plan::ProgramShape& shape,
                                      Rank rank);

/// One routed block alone: x [B, H] in, the reduced sum [B, H] out. With
/// kPrecomputed the routes (ids, weights [B, K]) are inputs; with kSoftmaxTopK
/// the layer's router is part of the block.
Result<step::ProgramDraft> RoutedBlock(const plan::ModelPlan& plan,
                                       const plan::ExpertView& view,
                                       const plan::ProgramShape& shape,
                                       step::RouterKind router);

}  // namespace signet::lower
