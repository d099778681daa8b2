#include "model/inspect.h"

namespace signet::model {

std::string_view Name(Family family) {
  switch (family) {
    case Family::kQwen35Moe:
      return "qwen3_5_moe";
    case Family::kQwen35:
      return "qwen3_5";
  }
  return "";
}

std::string_view Name(MixerKind kind) {
  switch (kind) {
    case MixerKind::kLinearAttention:
      return "linear_attention";
    case MixerKind::kFullAttention:
      return "full_attention";
  }
  return "";
}

std::string_view Name(MlpKind kind) {
  switch (kind) {
    case MlpKind::kDense:
      return "dense";
    case MlpKind::kMoe:
      return "moe";
  }
  return "";
}

std::string_view Name(ShardPolicy policy) {
  switch (policy) {
    case ShardPolicy::kReplicate:
      return "replicate";
    case ShardPolicy::kRows:
      return "rows";
    case ShardPolicy::kColumns:
      return "columns";
    case ShardPolicy::kQkvRowBlocks:
      return "qkv_row_blocks";
    case ShardPolicy::kHeadRows:
      return "head_rows";
    case ShardPolicy::kVocabularyRows:
      return "vocabulary_rows";
  }
  return "";
}

std::string_view Name(ExpertLayout layout) {
  switch (layout) {
    case ExpertLayout::kFused:
      return "fused";
    case ExpertLayout::kPerExpert:
      return "per_expert";
  }
  return "";
}

}  // namespace signet::model
