#pragma once
// The least that a call moves and computes, by what it is for: weights as the
// checkpoint stores them, each read once, and the state of its sequences.
// Activations are left out: they stay in caches. Pure functions.

#include <array>
#include <cstdint>
#include <string_view>

#include "model/manifest.h"
#include "tensor/dtype.h"

namespace signet::evidence {

enum class Part {
  kRoutedExperts,
  kDeltaNet,  // its projections and convolution
  kAttention,
  kSharedExpert,
  kRouter,
  kDenseMlp,
  kLmHead,
  kNorms,
  kEmbedding,       // rows of the tokens
  kKvCache,         // read and appended to
  kRecurrentState,  // read and written, that of the convolution too
};
inline constexpr size_t kNumParts =
    static_cast<size_t>(Part::kRecurrentState) + 1;

/// `routed_experts`, ...: the keys of the JSON form.
std::string_view Name(Part part);

struct Cost {
  double bytes = 0;
  double operations = 0;  // a multiply-add is two
};

struct Costs {
  std::array<Cost, kNumParts> parts = {};

  Cost& operator[](Part part) { return parts[static_cast<size_t>(part)]; }
  const Cost& operator[](Part part) const {
    return parts[static_cast<size_t>(part)];
  }
  Cost Total() const;
};

/// What the costs of every call follow from.
struct ModelSizes {
  /// Weights that every call reads, and the operations of a row on them.
  Costs dense;
  int64_t moe_layers = 0;
  int64_t num_experts = 0;
  int64_t top_k = 0;
  Cost expert;  // one of one layer, and a row on it
  double embedding_row_bytes = 0;
  double kv_bytes = 0;             // of a position, all layers
  double attended_operations = 0;  // of a row and a position it attends to
  double state_bytes = 0;          // of a sequence
  double delta_operations = 0;     // of a row, in the recurrent form
};

ModelSizes SizesOf(const model::Manifest& manifest, tensor::DType kv);

/// How many of `num_experts` are met by `rows` rows of `top_k` each, if all
/// are as likely: E (1 - (1 - K/E)^rows).
double UniformExperts(int64_t num_experts, int64_t top_k, double rows);

/// A decode step of `batch` sequences, of which each attends to `attended`
/// positions and all together to `experts` experts a layer.
Costs DecodeCosts(const ModelSizes& sizes, int64_t batch, double attended,
                  double experts);

/// A whole prompt in one pass, its experts met uniformly; logits of its last
/// row.
Costs PrefillCosts(const ModelSizes& sizes, int64_t tokens);

/// The time under which a call cannot end: part after part, the slower of
/// bytes and operations. `operations_per_second` of 0: by bytes alone.
double FloorSeconds(const Costs& costs, double bytes_per_second,
                    double operations_per_second);

}  // namespace signet::evidence
