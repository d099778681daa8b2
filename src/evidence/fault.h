#pragma once
// Faults that prove a comparison can fail (contract E3). Each acts on the
// input, the draft, the plan, the weights or the mesh of a side, as its author
// might have got it wrong; none on the comparison. Pure but for OtherK.

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "step/program.h"
#include "topology/mesh.h"

namespace signet::evidence {

enum class Fault {
  kWrongToken,       // input: one id of the prompt is another
  kFlipBasis,        // draft: an activation in another basis
  kSwapExperts,      // weights: experts of a layer change places
  kDropReduce,       // draft: addends go on unreduced
  kDoubleResidual,   // draft: the residual enters the reduced range
  kStaleEpoch,       // plan: lowered for an earlier mesh
  kPermuteRanks,     // draft: a group in another order
  kDuplicateDevice,  // mesh: one device for two ranks
  kOtherK,           // plan: one rank's program for another K
};

inline constexpr std::array kAllFaults = {
    Fault::kWrongToken,   Fault::kFlipBasis,       Fault::kSwapExperts,
    Fault::kDropReduce,   Fault::kDoubleResidual,  Fault::kStaleEpoch,
    Fault::kPermuteRanks, Fault::kDuplicateDevice, Fault::kOtherK};

/// `wrong-token`, ...
std::string_view Name(Fault fault);
std::optional<Fault> ParseFault(std::string_view name);

/// Applies a fault of the draft to `draft`; other faults leave it alone. False
/// when the program has nothing the fault could act on.
bool EditDraft(Fault fault, step::ProgramDraft& draft);

/// The prompt with one id changed.
std::vector<int32_t> WrongToken(std::vector<int32_t> prompt, int64_t vocab);

/// The refusal of a fault that a side has no place for.
tl::unexpected<Error> NoPlaceFor(Fault fault, const topology::MeshSpec& mesh);

}  // namespace signet::evidence
