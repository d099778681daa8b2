#include "evidence/bench_traffic.h"

#include <algorithm>
#include <cmath>

namespace signet::evidence {
namespace {

using model::Role;

Part PartOf(Role role) {
  switch (role) {
    case Role::kEmbedding:
      return Part::kEmbedding;
    case Role::kFinalNorm:
    case Role::kInputNorm:
    case Role::kPostNorm:
      return Part::kNorms;
    case Role::kLmHead:
      return Part::kLmHead;
    case Role::kQProj:
    case Role::kKProj:
    case Role::kVProj:
    case Role::kOProj:
    case Role::kQNorm:
    case Role::kKNorm:
      return Part::kAttention;
    case Role::kInProjQkv:
    case Role::kInProjZ:
    case Role::kInProjB:
    case Role::kInProjA:
    case Role::kConv:
    case Role::kALog:
    case Role::kDtBias:
    case Role::kLinearNorm:
    case Role::kOutProj:
      return Part::kDeltaNet;
    case Role::kRouter:
      return Part::kRouter;
    case Role::kSharedGate:
    case Role::kSharedUp:
    case Role::kSharedDown:
    case Role::kSharedRouter:
      return Part::kSharedExpert;
    case Role::kMlpGate:
    case Role::kMlpUp:
    case Role::kMlpDown:
      return Part::kDenseMlp;
  }
  return Part::kNorms;
}

double Elements(const tensor::Shape& shape) {
  return static_cast<double>(shape.NumElements().value());
}

void AddDense(const model::Manifest& manifest, ModelSizes& sizes) {
  for (const model::WeightEntry& entry : manifest.weights()) {
    const auto bytes = static_cast<double>(entry.source.size_bytes());
    if (entry.role == Role::kEmbedding) {
      sizes.embedding_row_bytes = bytes / static_cast<double>(entry.shape[0]);
      continue;
    }
    Cost& cost = sizes.dense[PartOf(entry.role)];
    cost.bytes += bytes;
    if (entry.shape.num_dims() == 2) {
      cost.operations += 2 * Elements(entry.shape);
    }
  }
}

void AddExperts(const model::Manifest& manifest, ModelSizes& sizes) {
  const std::vector<model::ExpertGroup>& groups = manifest.expert_groups();
  if (groups.empty()) return;
  const model::ExpertGroup& group = groups.front();  // as all others
  sizes.moe_layers = static_cast<int64_t>(groups.size());
  sizes.num_experts = group.num_experts;
  sizes.top_k = group.top_k;
  for (const model::ExpertProjection* projection :
       {&group.gate, &group.up, &group.down}) {
    sizes.expert.bytes += static_cast<double>(
        projection->shape.StorageBytes(projection->dtype).value());
    sizes.expert.operations += 2 * Elements(projection->shape);
  }
}

void AddState(const model::ModelConfig& config, tensor::DType kv,
              ModelSizes& sizes) {
  constexpr double kStateBytes = SizeOf(tensor::DType::kF32);
  const auto real = [](int64_t value) { return static_cast<double>(value); };
  const double delta = real(config.linear_value_heads) *
                       real(config.linear_key_dim) *
                       real(config.linear_value_dim);
  const double columns =
      real(config.conv_channels()) * real(config.conv_taps - 1);
  for (const model::LayerConfig& layer : config.layers) {
    if (layer.mixer == model::MixerKind::kFullAttention) {
      sizes.kv_bytes += 2 * real(config.num_kv_heads) * real(config.head_dim) *
                        static_cast<double>(SizeOf(kv));
      // Scores, and the values they weigh.
      sizes.attended_operations +=
          2 * 2 * real(config.num_heads) * real(config.head_dim);
    } else {
      sizes.state_bytes += (delta + columns) * kStateBytes;
      // The state's products with key and query, and the update between.
      sizes.delta_operations += 3 * 2 * delta;
    }
  }
}

// Rows on the weights that every call reads, those of the head aside.
void AddRows(const ModelSizes& sizes, double rows, double logit_rows,
             double experts, Costs& costs) {
  for (size_t i = 0; i < kNumParts; ++i) {
    const Cost& weight = sizes.dense.parts[i];
    const bool is_head = static_cast<Part>(i) == Part::kLmHead;
    costs.parts[i].bytes += weight.bytes;
    costs.parts[i].operations +=
        weight.operations * (is_head ? logit_rows : rows);
  }
  const auto layers = static_cast<double>(sizes.moe_layers);
  costs[Part::kRoutedExperts].bytes += layers * experts * sizes.expert.bytes;
  costs[Part::kRoutedExperts].operations += layers * rows *
                                            static_cast<double>(sizes.top_k) *
                                            sizes.expert.operations;
  costs[Part::kEmbedding].bytes += rows * sizes.embedding_row_bytes;
  costs[Part::kRecurrentState].operations += rows * sizes.delta_operations;
}

}  // namespace

std::string_view Name(Part part) {
  switch (part) {
    case Part::kRoutedExperts:
      return "routed_experts";
    case Part::kDeltaNet:
      return "delta_net";
    case Part::kAttention:
      return "attention";
    case Part::kSharedExpert:
      return "shared_expert";
    case Part::kRouter:
      return "router";
    case Part::kDenseMlp:
      return "dense_mlp";
    case Part::kLmHead:
      return "lm_head";
    case Part::kNorms:
      return "norms";
    case Part::kEmbedding:
      return "embedding";
    case Part::kKvCache:
      return "kv_cache";
    case Part::kRecurrentState:
      return "recurrent_state";
  }
  return "";
}

Cost Costs::Total() const {
  Cost total;
  for (const Cost& part : parts) {
    total.bytes += part.bytes;
    total.operations += part.operations;
  }
  return total;
}

ModelSizes SizesOf(const model::Manifest& manifest, tensor::DType kv) {
  ModelSizes sizes;
  AddDense(manifest, sizes);
  AddExperts(manifest, sizes);
  AddState(manifest.config(), kv, sizes);
  return sizes;
}

double UniformExperts(int64_t num_experts, int64_t top_k, double rows) {
  if (num_experts == 0) return 0;
  const auto all = static_cast<double>(num_experts);
  const double missed = 1 - static_cast<double>(top_k) / all;
  return all * (1 - std::pow(missed, rows));
}

Costs DecodeCosts(const ModelSizes& sizes, int64_t batch, double attended,
                  double experts) {
  const auto rows = static_cast<double>(batch);
  Costs costs;
  AddRows(sizes, rows, rows, experts, costs);
  costs[Part::kKvCache].bytes += rows * (attended + 1) * sizes.kv_bytes;
  costs[Part::kKvCache].operations +=
      rows * attended * sizes.attended_operations;
  costs[Part::kRecurrentState].bytes += 2 * rows * sizes.state_bytes;
  return costs;
}

Costs PrefillCosts(const ModelSizes& sizes, int64_t tokens) {
  const auto rows = static_cast<double>(tokens);
  Costs costs;
  AddRows(sizes, rows, 1, UniformExperts(sizes.num_experts, sizes.top_k, rows),
          costs);
  costs[Part::kKvCache].bytes += 2 * rows * sizes.kv_bytes;
  costs[Part::kKvCache].operations +=
      rows * (rows + 1) / 2 * sizes.attended_operations;
  costs[Part::kRecurrentState].bytes += 2 * sizes.state_bytes;
  return costs;
}

double FloorSeconds(const Costs& costs, double bytes_per_second,
                    double operations_per_second) {
  double seconds = 0;
  for (const Cost& part : costs.parts) {
    const double moving =
        bytes_per_second > 0 ? part.bytes / bytes_per_second : 0;
    const double computing =
        operations_per_second > 0 ? part.operations / operations_per_second : 0;
    seconds += std::max(moving, computing);
  }
  return seconds;
}

}  // namespace signet::evidence
