#include "step/rules/lifetimes.h"

#include <algorithm>

#include "step/operands.h"

namespace signet::step::rules {

IdVector<BufferId, Lifetime> LifetimesOf(const ProgramDraft& draft) {
  const auto end = static_cast<int64_t>(draft.steps.size());
  IdVector<BufferId, Lifetime> lifetimes(draft.buffers.size(),
                                         Lifetime{end, -1});
  for (int64_t i = 0; i < end; ++i) {
    ForEachOperand(draft.steps[static_cast<size_t>(i)],
                   [&](std::string_view, BufferId id, Access) {
                     Lifetime& lifetime = lifetimes[id];
                     lifetime.first = std::min(lifetime.first, i);
                     lifetime.last = i;
                   });
  }
  for (size_t i = 0; i < draft.buffers.size(); ++i) {
    const BufferId id(static_cast<int32_t>(i));
    const BufferDecl& buffer = draft.buffers[id];
    if (buffer.kind != BufferKind::kWork) {
      lifetimes[id] = {0, end};
    } else if (buffer.io) {
      lifetimes[id].last = end;
    }
  }
  return lifetimes;
}

}  // namespace signet::step::rules
