#pragma once
// The closed list of refusal codes. Each has a test that provokes it;
// tests/coverage_test fails if one is reached by none.

#include <string_view>

namespace signet {

// X(Enumerator, "printed_name")
#define SIGNET_REJECTION_CODES(X)                      \
  /* Opening a source (A1-A3) */                       \
  X(kSourceNotFound, "source_not_found")               \
  X(kSourceAmbiguous, "source_ambiguous")              \
  X(kFileMissing, "file_missing")                      \
  X(kFileUnreadable, "file_unreadable")                \
  X(kJsonInvalid, "json_invalid")                      \
  X(kHeaderInvalid, "header_invalid")                  \
  X(kHeaderTooLarge, "header_too_large")               \
  X(kTensorRangeInvalid, "tensor_range_invalid")       \
  X(kTensorDuplicate, "tensor_duplicate")              \
  X(kTensorMisaligned, "tensor_misaligned")            \
  X(kFileTruncated, "file_truncated")                  \
  X(kIndexInconsistent, "index_inconsistent")          \
  X(kDTypeUnsupported, "dtype_unsupported")            \
  /* Config and manifest (W, P0) */                    \
  X(kFamilyUnsupported, "family_unsupported")          \
  X(kConfigFieldMissing, "config_field_missing")       \
  X(kConfigFieldInvalid, "config_field_invalid")       \
  X(kConfigUnsupported, "config_unsupported")          \
  X(kTensorMissing, "tensor_missing")                  \
  X(kTensorUnknown, "tensor_unknown")                  \
  X(kTensorShapeMismatch, "tensor_shape_mismatch")     \
  X(kExpertSetInvalid, "expert_set_invalid")           \
  X(kExpertFormatsMixed, "expert_formats_mixed")       \
  X(kExpertRowsOdd, "expert_rows_odd")                 \
  X(kAliasInvalid, "alias_invalid")                    \
  /* Weights, while they are loaded */                 \
  X(kWeightNotFinite, "weight_not_finite")             \
  /* Tokenizer */                                      \
  X(kTokenizerInvalid, "tokenizer_invalid")            \
  X(kTokenizerUnsupported, "tokenizer_unsupported")    \
  /* Mesh and devices (M) */                           \
  X(kMeshUnparsable, "mesh_unparsable")                \
  X(kMeshAxisRepeated, "mesh_axis_repeated")           \
  X(kMeshTooLarge, "mesh_too_large")                   \
  X(kMeshUnsupported, "mesh_unsupported")              \
  X(kDevicesInvalid, "devices_invalid")                \
  X(kDeviceUnavailable, "device_unavailable")          \
  X(kDeviceRepeated, "device_repeated")                \
  X(kEpochStale, "epoch_stale")                        \
  /* Several processes (F3) */                         \
  X(kLauncherInvalid, "launcher_invalid")              \
  X(kRanksDisagree, "ranks_disagree")                  \
  /* Plan (P) */                                       \
  X(kPlanOptionInvalid, "plan_option_invalid")         \
  X(kShapeListInvalid, "shape_list_invalid")           \
  X(kExpertsIndivisible, "experts_indivisible")        \
  X(kCapacityOverflow, "capacity_overflow")            \
  X(kMemoryShort, "memory_short")                      \
  /* Program text */                                   \
  X(kProgramTextInvalid, "program_text_invalid")       \
  /* Sealing, structure (S1, G3) */                    \
  X(kProgramEmpty, "program_empty")                    \
  X(kProgramHeaderMismatch, "program_header_mismatch") \
  X(kBufferUnknown, "buffer_unknown")                  \
  X(kGrammarBroken, "grammar_broken")                  \
  X(kRouteLinkBroken, "route_link_broken")             \
  X(kCollectiveUnscheduled, "collective_unscheduled")  \
  X(kCollectiveMissing, "collective_missing")          \
  /* Sealing, types (S2) */                            \
  X(kOperandDType, "operand_dtype")                    \
  X(kOperandShape, "operand_shape")                    \
  X(kOperandBasis, "operand_basis")                    \
  X(kOperandRole, "operand_role")                      \
  X(kStepAttribute, "step_attribute")                  \
  X(kWeightRecipe, "weight_recipe")                    \
  /* Sealing, dataflow (S3) */                         \
  X(kReadBeforeWrite, "read_before_write")             \
  X(kWrittenTwice, "written_twice")                    \
  X(kPartialUnreduced, "partial_unreduced")            \
  X(kPartialReducedTwice, "partial_reduced_twice")     \
  X(kWholeInReducedRange, "whole_in_reduced_range")    \
  X(kShardMisread, "shard_misread")                    \
  /* Sealing, capacity, aliasing, placement (S4-S6) */ \
  X(kBufferTooSmall, "buffer_too_small")               \
  X(kArenaOverrun, "arena_overrun")                    \
  X(kBuffersOverlap, "buffers_overlap")                \
  X(kArenaOfOtherRank, "arena_of_other_rank")          \
  X(kGroupMismatch, "group_mismatch")                  \
  /* Preflight of all ranks (F1, F2) */                \
  X(kSignatureMismatch, "signature_mismatch")          \
  X(kMeetingMismatch, "meeting_mismatch")              \
  X(kMeetingCycle, "meeting_cycle")                    \
  /* Bind (S8, T3) */                                  \
  X(kBindContractMismatch, "bind_contract_mismatch")   \
  X(kBindArenaTooSmall, "bind_arena_too_small")        \
  X(kBindArenaMisaligned, "bind_arena_misaligned")     \
  X(kBindArenaDevice, "bind_arena_device")             \
  X(kBindGenerationStale, "bind_generation_stale")     \
  /* Requests */                                       \
  X(kRequestInvalid, "request_invalid")                \
  X(kPromptTooLong, "prompt_too_long")

enum class RejectionCode {
#define SIGNET_X(enumerator, name) enumerator,
  SIGNET_REJECTION_CODES(SIGNET_X)
#undef SIGNET_X
};

/// Number of codes; codes are 0 ... kNumRejectionCodes - 1.
inline constexpr int kNumRejectionCodes =
#define SIGNET_X(enumerator, name) +1
    0 SIGNET_REJECTION_CODES(SIGNET_X);
#undef SIGNET_X

/// The printed name, as in JSON: lower-case words joined by underscores.
std::string_view Name(RejectionCode code);

}  // namespace signet
