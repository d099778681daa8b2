#pragma once
// What all ranks of a block's group must agree on (contract F1): a value
// without pointers, derived from the sealed program and its plan, one a block
// that ends in an all-reduce or a gather of several ranks. One table of fields;
// comparison, text and tests walk it, and a field without a row in it does not
// compile. Pure; any thread.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/digest.h"
#include "base/id.h"
#include "exec/aggregate_arity.h"
#include "exec/program_parts.h"
#include "model/rejection_cap.h"
#include "plan/model_plan.h"

namespace signet::exec {

/// Fields that a kind of block does not have keep their defaults on all ranks.
struct BlockSignature {
  Digest contract;
  std::string_view block;     // routed_experts, mixer, mlp, lm_head
  int64_t layer = -1;         // -1: of no layer
  std::string grammar;        // the kinds of its steps, in order
  std::string attributes;     // what those steps state, equal on all ranks
  std::string dtypes;         // of every operand but weights
  std::string formats;        // of its weights, by projection
  std::string bases;          // of their inputs, by projection
  std::string activation;     // its step and all that it states: clamps
  std::string_view router;    // softmax, precomputed
  int64_t top_k = 0;          // K
  int64_t renormalise = 0;    // 0 or 1
  int64_t num_experts = 0;    // E
  int64_t local_experts = 0;  // E_r
  int64_t hidden = 0;         // H: elements of a row of the result
  int64_t width = 0;          // I; the dimension that is shared out
  int64_t local_width = 0;    // I_r; a rank's part of it, the largest
  std::string shape;          // decode or prefill, and whose logits
  int64_t rows = 0;           // B
  int64_t tile_rows = 0;      // bm
  int64_t lanes = 0;          // L of the fold
  int64_t local_lanes = 0;    // of one rank
  std::string_view parallelism;
  Digest partition;          // every (expert, owner, local slot)
  std::string backend;       // whose kernels
  std::string architecture;  // their instruction set
};

template <typename T>
struct SignatureField {
  std::string_view name;
  T BlockSignature::* value;
};
template <typename T>
SignatureField(std::string_view, T BlockSignature::*) -> SignatureField<T>;

/// The one table: every field of a BlockSignature and what it is called.
inline constexpr std::tuple kSignatureFields = {
    SignatureField{"contract id", &BlockSignature::contract},
    SignatureField{"block", &BlockSignature::block},
    SignatureField{"layer", &BlockSignature::layer},
    SignatureField{"grammar", &BlockSignature::grammar},
    SignatureField{"attributes", &BlockSignature::attributes},
    SignatureField{"dtypes", &BlockSignature::dtypes},
    SignatureField{"weight formats", &BlockSignature::formats},
    SignatureField{"bases", &BlockSignature::bases},
    SignatureField{"activation", &BlockSignature::activation},
    SignatureField{"router", &BlockSignature::router},
    SignatureField{"K", &BlockSignature::top_k},
    SignatureField{"renormalise", &BlockSignature::renormalise},
    SignatureField{"E", &BlockSignature::num_experts},
    SignatureField{"local E", &BlockSignature::local_experts},
    SignatureField{"H", &BlockSignature::hidden},
    SignatureField{"I", &BlockSignature::width},
    SignatureField{"local I", &BlockSignature::local_width},
    SignatureField{"shape", &BlockSignature::shape},
    SignatureField{"B", &BlockSignature::rows},
    SignatureField{"tile rows", &BlockSignature::tile_rows},
    SignatureField{"fold lanes", &BlockSignature::lanes},
    SignatureField{"local fold lanes", &BlockSignature::local_lanes},
    SignatureField{"parallelism", &BlockSignature::parallelism},
    SignatureField{"ownership partition", &BlockSignature::partition},
    SignatureField{"kernel family", &BlockSignature::backend},
    SignatureField{"instruction set", &BlockSignature::architecture},
};

inline constexpr size_t kNumSignatureFields =
    std::tuple_size_v<decltype(kSignatureFields)>;
static_assert(AggregateArity<BlockSignature>() == kNumSignatureFields,
              "a field of BlockSignature has no row in kSignatureFields");
static_assert(AreDistinctMembers(kSignatureFields),
              "a field of BlockSignature has two rows in kSignatureFields");

/// One refusal, kSignatureMismatch, a field that differs. `where` is called for
/// the place of `got`; `first` is the rank of `want`.
void CompareSignatures(const BlockSignature& want, const BlockSignature& got,
                       const std::function<std::string()>& where, Rank first,
                       model::CappedRejections& findings);

/// One line a field, in the order of the table: what processes exchange (F3).
std::string ToText(const BlockSignature& signature);

/// The signature of one block and the step that ends it.
struct SignedBlock {
  size_t step;
  BlockSignature signature;
};

/// In the order of the program's steps. `plan` is the one the program was
/// sealed with.
std::vector<SignedBlock> SignaturesOf(const ProgramParts& program,
                                      const plan::ModelPlan& plan);

}  // namespace signet::exec
