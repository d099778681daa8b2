#pragma once
// One walk over the operands of a step, whatever its kind: what dataflow,
// lifetimes and binding share.

#include <optional>
#include <string_view>
#include <variant>

#include "base/id.h"
#include "step/steps.h"

namespace signet::step {

enum class Access { kRead, kWrite, kUpdate };

namespace internal {

template <typename F>
struct OperandWalk {
  F& f;
  void Read(std::string_view name, BufferId id) { f(name, id, Access::kRead); }
  void Write(std::string_view name, BufferId id) {
    f(name, id, Access::kWrite);
  }
  void Update(std::string_view name, BufferId id) {
    f(name, id, Access::kUpdate);
  }
  void ReadOptional(std::string_view name, std::optional<BufferId> id) {
    if (id) f(name, *id, Access::kRead);
  }
  void WriteOptional(std::string_view name, std::optional<BufferId> id) {
    if (id) f(name, *id, Access::kWrite);
  }
  template <typename T>
  void Attribute(std::string_view, const T&) {}
};

}  // namespace internal

/// Calls f(name, buffer, access) for every operand present, in field order.
template <typename F>
void ForEachOperand(const Step& step, F&& f) {
  internal::OperandWalk<F> walk{f};
  std::visit([&](const auto& s) { s.Fields(s, walk); }, step);
}

/// `target` may lie over exactly the range of `source`: the step is elementwise
/// and reads an element before it writes it (backend/kernels.h says so too).
struct InPlacePair {
  BufferId source;
  BufferId target;
};

/// The one pair a step kind declares; unset for kinds without.
std::optional<InPlacePair> InPlace(const Step& step);

}  // namespace signet::step
