#pragma once
// What a plan is made from besides the model and the mesh. All of it is in the
// contract id.

#include <cstdint>
#include <vector>

#include "tensor/dtype.h"

namespace signet::plan {

/// How a tp axis spreads the routed experts (W4): each owned by one rank, or
/// every rank holding a slice of every expert's width.
enum class TpExperts { kSplit, kOwned };

struct PlanOptions {
  int64_t context = 4096;  // positions a sequence may hold
  int64_t batch = 1;       // sequence slots
  tensor::DType kv_dtype = tensor::DType::kF32;  // f32 or bf16
  int64_t page_tokens = 64;
  /// Empty: powers of two up to `batch`, and `batch`.
  std::vector<int64_t> decode_buckets;
  /// Empty: 32, 128, 512 on the CPU, 64, 512, 2048, 8192 on a GPU, those above
  /// the context left out but the least.
  std::vector<int64_t> prefill_chunks;
  /// Logits of every row of a prefill chunk (goldens, verification).
  bool all_logits = false;
  TpExperts tp_experts = TpExperts::kSplit;  // without a tp axis: no effect
};

}  // namespace signet::plan
