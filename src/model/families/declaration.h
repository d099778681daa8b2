#pragma once
// What a model family says about its checkpoints: the tensors, their roles,
// shapes and shard policies, the routed experts, and the names that a text
// runtime skips. A family declares; it never opens, allocates or places.
// Values.

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/id.h"
#include "model/config.h"
#include "model/manifest.h"
#include "tensor/basis.h"
#include "tensor/shape.h"

namespace signet::model {

struct DeclaredWeight {
  Role role;
  std::optional<LayerId> layer;
  std::string name;            // in the checkpoint
  tensor::Shape shape;         // logical
  tensor::Shape stored_shape;  // in the file; equal bytes
  ShardPolicy shard;
  tensor::Basis input_basis = tensor::Basis::kNatural;
};

/// The routed experts of a layer, stored either as
/// `PREFIXgate_up_proj` [E, 2I, H] (gate rows, then up rows) and
/// `PREFIXdown_proj` [E, H, I], or for each expert e as
/// `PREFIXe.gate_proj.weight` [I, H], `.up_proj.weight`, `.down_proj.weight`.
struct DeclaredExperts {
  LayerId layer;
  std::string prefix;
  int64_t num_experts;
  int64_t top_k;
  int64_t hidden;
  int64_t width;
  tensor::Basis gate_up_basis = tensor::Basis::kNatural;
  tensor::Basis down_basis = tensor::Basis::kNatural;
};

struct Declaration {
  std::vector<DeclaredWeight> weights;   // embedding, layers, final norm, head
  std::vector<DeclaredExperts> experts;  // by layer
};

struct SkipRule {
  std::string_view prefix;
  std::string_view name;
};

/// How the checkpoints of a family name their tensors.
struct FamilyNames {
  /// Prefixes of the language model, the one to assume first.
  std::span<const std::string_view> prefixes;
  /// What follows a prefix in every checkpoint.
  std::span<const std::string_view> language_parts;
  std::span<const SkipRule> skip_rules;
};

}  // namespace signet::model
