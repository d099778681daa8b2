#include "backend/gpu/expert_layout.h"

namespace signet::backend::gpu {
namespace {

constexpr uintptr_t kAlign = 16;

ExpertMatrices MatricesOf(std::span<const ExpertPointers> experts,
                          const void* ExpertPointers::* member) {
  const auto at = [&](size_t e) {
    return reinterpret_cast<uintptr_t>(experts[e].*member);
  };
  if (experts.empty() || at(0) == 0 || at(0) % kAlign != 0) return {};
  if (experts.size() == 1) return {experts[0].*member, 0};
  const uintptr_t apart = at(1) - at(0);
  if (at(1) <= at(0) || apart % kAlign != 0) return {};
  for (size_t e = 2; e < experts.size(); ++e) {
    if (at(e) - at(e - 1) != apart) return {};
  }
  return {experts[0].*member, static_cast<int64_t>(apart)};
}

}  // namespace

ExpertLayout LayoutOf(std::span<const ExpertPointers> experts) {
  return {.gate = MatricesOf(experts, &ExpertPointers::gate),
          .up = MatricesOf(experts, &ExpertPointers::up),
          .down = MatricesOf(experts, &ExpertPointers::down)};
}

}  // namespace signet::backend::gpu
