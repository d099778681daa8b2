#pragma once
// Where the weights lie that are read at a load. Any thread.

#include <vector>

#include "model/manifest.h"
#include "plan/model_plan.h"
#include "tensor/dtype.h"

namespace signet::store {

struct WeightRange {
  model::FileRange file_range;  // whole elements of one tensor
  tensor::DType dtype;
  bool is_sensitive;  // IsSensitive of its role
};

/// Whether every token meets each element of a weight of this role: norms,
/// routers, and the decays of the recurrent state. They are few and small.
bool IsSensitive(model::Role role);

/// Everything that the manifest consumes, once, in file order.
std::vector<WeightRange> WeightRanges(const model::Manifest& manifest);
/// What of it programs of these ranks will read.
std::vector<WeightRange> WeightRanges(const plan::ModelPlan& plan,
                                      const std::vector<Rank>& ranks);

}  // namespace signet::store
