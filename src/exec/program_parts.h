#pragma once
// What the preflight reads of a program: enough to compare it with those of
// other ranks, and nothing that could run it.

#include <span>

#include "base/digest.h"
#include "base/id.h"
#include "plan/program_shape.h"
#include "step/program.h"

namespace signet::exec {

/// Borrows from the program, which must outlive it.
struct ProgramParts {
  // NOLINTNEXTLINE(google-explicit-constructor): a program is its parts.
  ProgramParts(const step::SealedProgram& program)
      : contract(program.contract()),
        rank(program.rank()),
        shape(program.shape()),
        buffers(program.buffers()),
        steps(program.steps()) {}
  /// For tests of what no plan makes yet.
  explicit ProgramParts(const step::ProgramDraft& draft)
      : contract(draft.contract),
        rank(draft.rank),
        shape(draft.shape),
        buffers(draft.buffers),
        steps(draft.steps) {}

  const Digest& contract;
  Rank rank;
  const plan::ProgramShape& shape;
  const IdVector<BufferId, step::BufferDecl>& buffers;
  std::span<const step::Step> steps;
};

}  // namespace signet::exec
