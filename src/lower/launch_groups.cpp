#include "lower/launch_groups.h"

#include <variant>

namespace signet::lower {
namespace {

template <typename... Kinds>
bool IsAny(const step::Step& step) {
  return (std::holds_alternative<Kinds>(step) || ...);
}

// Whether step `i` is the norm of a sum, and rounded: a launch may take it with
// the add.
bool IsRoundedNormOfASum(std::span<const step::Step> steps, size_t i) {
  return i >= 1 && i + 1 < steps.size() &&
         IsAny<step::ResidualAdd>(steps[i - 1]) &&
         IsAny<step::Norm>(steps[i]) && IsAny<step::Round>(steps[i + 1]);
}

// Whether step `i` begins a group; it is not the first.
bool Begins(std::span<const step::Step> steps, size_t i) {
  const step::Step& step = steps[i];
  const step::Step& before = steps[i - 1];
  if (IsRoundedNormOfASum(steps, i)) return false;
  // Such an add begins a group, but for the one that ends a routed block.
  if (IsRoundedNormOfASum(steps, i + 1) && !IsAny<step::GatedAdd>(before)) {
    return true;
  }
  if (IsAny<step::Norm, step::Conv, step::QkNormRope>(step)) return true;
  // The products of selected experts may share a launch with what selects them.
  if (IsAny<step::MoeRoute>(step)) {
    return i + 1 == steps.size() || !IsAny<step::IndexedMoeGemv>(steps[i + 1]);
  }
  if (const auto* gemm = std::get_if<step::GroupedMoeGemm>(&step)) {
    return gemm->which == step::ExpertPart::kDown;
  }
  // Of grouped rows: down's inputs are large.
  if (const auto* combine = std::get_if<step::MoeCombine>(&step)) {
    return combine->inverse_perm.has_value();
  }
  // The product that ends a mixer or a feed-forward part, and products of
  // rounded inputs.
  return IsAny<step::Projection, step::Logits>(step) &&
         IsAny<step::GatedNorm, step::Attention, step::Activation, step::Round>(
             before);
}

}  // namespace

std::vector<LaunchGroup> LaunchGroupsOf(std::span<const step::Step> steps) {
  std::vector<LaunchGroup> groups(steps.size());
  size_t first = 0;
  for (size_t i = 1; i <= steps.size(); ++i) {
    if (i < steps.size() && !Begins(steps, i)) continue;
    for (size_t j = first; j < i; ++j) {
      groups[j] = {static_cast<int64_t>(first), static_cast<int64_t>(i) - 1};
    }
    first = i;
  }
  return groups;
}

}  // namespace signet::lower
