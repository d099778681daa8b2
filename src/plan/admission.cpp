#include "plan/admission.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

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

}  // namespace

Result<void> Admit(const model::ModelConfig& config, const topology::Mesh& mesh,
                   const PlanOptions& options) {
  RejectionList rejections;
  for (const topology::AxisSize& axis : mesh.spec().axes()) {
    if (axis.size == 1) continue;
    if (axis.axis == topology::Axis::kEp) {
      if (config.num_experts > 0) continue;
      rejections.Add(RejectionCode::kMeshUnsupported, "--mesh",
                     "an ep axis needs a model with experts",
                     mesh.spec().ToString(), "single");
      continue;
    }
    rejections.Add(RejectionCode::kMeshUnsupported, "--mesh",
                   fmt::format("a {} axis of more than one rank is not "
                               "supported yet",
                               Name(axis.axis)),
                   mesh.spec().ToString(), "single, or ep=N");
  }
  for (int r = 0; r < mesh.num_ranks(); ++r) {
    const topology::DeviceIdentity& device = mesh.device(Rank(r));
    if (device.backend == "cpu") continue;
    rejections.Add(RejectionCode::kMeshUnsupported, "--devices",
                   "this backend is not supported yet", device.backend, "cpu");
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
