#pragma once
// Finds the routed experts of one layer, fused or one by one, and gives both
// layouts the same projections (contract W3). Functions; one thread.

#include <optional>

#include "model/families/declaration.h"
#include "model/manifest.h"
#include "model/tensor_set.h"

namespace signet::model {

struct ExpertSources {
  ExpertLayout layout;
  ExpertProjection gate;
  ExpertProjection up;
  ExpertProjection down;
};

/// Takes every tensor of the group from `tensors`. Unset when something was
/// wrong, which is noted there.
std::optional<ExpertSources> FindExpertSources(const DeclaredExperts& experts,
                                               TensorSet* tensors);

}  // namespace signet::model
