#include "step/rules/location.h"

#include <fmt/format.h>

namespace signet::step::rules {
namespace {

std::string NameOf(const ProgramDraft& draft, BufferId id) {
  return draft.buffers.Contains(id) ? draft.buffers[id].name
                                    : fmt::format("%{}", id.value());
}

}  // namespace

std::string Locate(const ProgramDraft& draft, size_t step) {
  return fmt::format("step {} {}", step, KindName(draft.steps[step]));
}

std::string Locate(const ProgramDraft& draft, size_t step,
                   std::string_view operand, BufferId id) {
  return fmt::format("step {} {}, {} = {}", step, KindName(draft.steps[step]),
                     operand, NameOf(draft, id));
}

std::string Locate(const ProgramDraft& draft, BufferId id) {
  return fmt::format("buffer {}", NameOf(draft, id));
}

}  // namespace signet::step::rules
