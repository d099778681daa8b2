#include "plan/admission.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "plan/rank_dims.h"
#include "tensor/kernel_limits.h"

namespace signet::plan {
namespace {

constexpr int64_t kMaxBatch = 4096;
constexpr int64_t kMaxChunk = 65536;
constexpr int64_t kMaxPageTokens = 65536;

void CheckRange(std::string_view option, int64_t value, int64_t low,
                int64_t high, RejectionList& rejections) {
  if (value >= low && value <= high) return;
  rejections.Add(RejectionCode::kPlanOptionInvalid, std::string(option),
                 "a plan option is out of range", std::to_string(value),
                 fmt::format("{} ... {}", low, high));
}

void CheckShapeList(std::string_view option, const std::vector<int64_t>& list,
                    int64_t high, RejectionList& rejections) {
  for (size_t i = 0; i < list.size(); ++i) {
    const bool ascending = i == 0 || list[i] > list[i - 1];
    if (list[i] >= 1 && list[i] <= high && ascending) continue;
    rejections.Add(RejectionCode::kShapeListInvalid, std::string(option),
                   "a shape list must ascend within its range",
                   std::to_string(list[i]), fmt::format("1 ... {}", high));
  }
}

void CheckWidth(const char* what, int64_t value, int64_t most,
                RejectionList& rejections) {
  if (value <= most) return;
  rejections.Add(RejectionCode::kConfigUnsupported, what,
                 "wider than the kernels support", std::to_string(value),
                 fmt::format("at most {}", most));
}

// What a tp axis of `parts` ranks cuts evenly (P3b); zero where the model has
// none of it.
void CheckTensorParallel(const model::ModelConfig& config, int64_t parts,
                         RejectionList& rejections) {
  const auto check = [&](const char* what, int64_t count) {
    if (count % parts == 0) return;
    rejections.Add(RejectionCode::kMeshUnsupported, "--mesh",
                   fmt::format("the tp axis does not divide the {}", what),
                   fmt::format("tp={}", parts),
                   fmt::format("a divisor of {}", count));
  };
  check("query heads", config.num_heads);
  check("kv heads", config.num_kv_heads);
  check("linear key heads", config.linear_key_heads);
  check("shared expert's width", config.shared_width);
  check("dense width", config.dense_width);
  if (topology::BlockOf(config.vocab, parts, parts - 1).size == 0) {
    rejections.Add(RejectionCode::kMeshUnsupported, "--mesh",
                   "the tp axis leaves a rank without vocabulary rows",
                   fmt::format("tp={}", parts),
                   fmt::format("{} rows", config.vocab));
  }
}

void CheckMesh(const model::ModelConfig& config, const topology::Mesh& mesh,
               RejectionList& rejections) {
  using topology::Axis;
  const int64_t pp = mesh.size(Axis::kPp);
  const int64_t tp = mesh.size(Axis::kTp);
  const int64_t ep = mesh.size(Axis::kEp);
  const auto refuse = [&](std::string message, std::string want) {
    rejections.Add(RejectionCode::kMeshUnsupported, "--mesh",
                   std::move(message), mesh.spec().ToString(), std::move(want));
  };
  if (tp > 1 && ep > 1) {
    refuse("tp and ep do not combine", "tp=N --experts owned, or ep=N");
  }
  if (ep > 1 && config.num_experts == 0) {
    refuse("an ep axis needs a model with experts", "single, tp=N or pp=N");
  }
  const auto layers = static_cast<int64_t>(config.layers.size());
  if (pp > layers) {
    refuse("more pipeline stages than layers",
           fmt::format("pp up to {}", layers));
  }
  if (tp > 1) CheckTensorParallel(config, tp, rejections);
}

}  // namespace

Result<void> Admit(const model::ModelConfig& config, const topology::Mesh& mesh,
                   const PlanOptions& options) {
  RejectionList rejections;
  CheckMesh(config, mesh, rejections);
  for (int r = 0; r < mesh.num_ranks(); ++r) {
    if (mesh.num_ranks() == 1 || !mesh.device(Rank(r)).is_gpu()) continue;
    rejections.Add(RejectionCode::kMeshUnsupported, "--devices",
                   "meshes of several ranks do not run on GPUs yet",
                   mesh.spec().ToString(), "single, or --devices cpu");
    break;
  }
  CheckWidth("head_dim", config.head_dim, tensor::kMaxHeadDim, rejections);
  CheckWidth("linear_key_head_dim", config.linear_key_dim, tensor::kMaxHeadDim,
             rejections);
  CheckWidth("linear_value_head_dim", config.linear_value_dim,
             tensor::kMaxHeadDim, rejections);
  CheckWidth("linear_conv_kernel_dim", config.conv_taps, tensor::kMaxConvTaps,
             rejections);
  CheckRange("--ctx", options.context, 1,
             std::min<int64_t>(config.max_position,
                               std::numeric_limits<int32_t>::max()),
             rejections);
  CheckRange("--batch", options.batch, 1, kMaxBatch, rejections);
  CheckRange("page tokens", options.page_tokens, 1, kMaxPageTokens, rejections);
  if (options.kv_dtype != tensor::DType::kF32 &&
      options.kv_dtype != tensor::DType::kBF16) {
    rejections.Add(RejectionCode::kPlanOptionInvalid, "--kv",
                   "the KV cache cannot have this dtype",
                   std::string(Name(options.kv_dtype)), "f32 or bf16");
  }
  CheckShapeList("decode buckets", options.decode_buckets, options.batch,
                 rejections);
  if (!options.decode_buckets.empty() &&
      options.decode_buckets.back() < options.batch) {
    rejections.Add(RejectionCode::kShapeListInvalid, "decode buckets",
                   "no decode bucket holds the whole batch",
                   std::to_string(options.decode_buckets.back()),
                   std::to_string(options.batch));
  }
  CheckShapeList("prefill chunks", options.prefill_chunks, kMaxChunk,
                 rejections);
  if (!rejections.empty()) return rejections.Take();
  return {};
}

}  // namespace signet::plan
