#pragma once
// The routed blocks of a program, found by the one reading of both grammars
// (contract G3) that the structure and the type rules share.

#include <cstddef>
#include <optional>
#include <vector>

#include "base/id.h"
#include "step/program.h"
#include "step/rules/rules.h"

namespace signet::step::rules {

/// Step indices of one block. Indexed blocks have no scatter and unscatter.
struct RoutedBlock {
  LayerId layer;  // of the experts its gate/up product reads
  size_t route = 0;
  std::optional<size_t> scatter;
  size_t gate_up = 0;
  std::optional<size_t> unscatter;
  size_t activation = 0;
  size_t down = 0;
  size_t combine = 0;

  bool grouped() const { return scatter.has_value(); }
};

/// Every complete block, in program order. Anything else among the MoE steps
/// is a finding (kGrammarBroken) when `findings` is given. All buffer ids of
/// the draft must exist.
std::vector<RoutedBlock> FindRoutedBlocks(const ProgramDraft& draft,
                                          Findings* findings);

/// G4: the operands of `block` belong to one route and one owner view.
void CheckLinks(const ProgramDraft& draft, const RoutedBlock& block,
                Findings& findings);

}  // namespace signet::step::rules
