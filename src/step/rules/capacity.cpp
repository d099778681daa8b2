// S4: every buffer has the bytes of its shape, and lies within its arena. The
// shapes of grouped buffers hold the worst routing (P5): S2 proves them.

#include <string>

#include "plan/layouter.h"
#include "step/rules/location.h"
#include "step/rules/rules.h"

namespace signet::step::rules {
namespace {

void CheckPlace(const ProgramDraft& draft, BufferId id, Findings& findings) {
  const BufferDecl& buffer = draft.buffers[id];
  if (buffer.arena == MemoryClass::kMapped) {
    // A view of a file, by name; it has no place of its own.
    if (buffer.offset_bytes == 0) return;
    findings.Add(RejectionCode::kArenaOverrun, Locate(draft, id),
                 "a mapped buffer has an offset",
                 std::to_string(buffer.offset_bytes), "0");
    return;
  }
  if (buffer.offset_bytes % plan::kBufferAlignment != 0) {
    findings.Add(RejectionCode::kArenaOverrun, Locate(draft, id),
                 "a buffer is not aligned", std::to_string(buffer.offset_bytes),
                 "a multiple of " + std::to_string(plan::kBufferAlignment));
  }
  const auto arena = draft.arena_bytes.find(buffer.arena);
  const Bytes limit =
      arena == draft.arena_bytes.end() ? Bytes() : arena->second;
  const Bytes end = Bytes(buffer.offset_bytes) + buffer.size;
  if (end.overflowed() || end > limit) {
    findings.Add(RejectionCode::kArenaOverrun, Locate(draft, id),
                 "a buffer reaches past the end of its arena",
                 std::to_string(end.value()),
                 std::to_string(limit.value()) + " of " +
                     std::string(Name(buffer.arena)));
  }
}

}  // namespace

void CheckCapacity(const ProgramDraft& draft, Findings& findings) {
  for (size_t i = 0; i < draft.buffers.size(); ++i) {
    const BufferId id(static_cast<int32_t>(i));
    const BufferDecl& buffer = draft.buffers[id];
    const Bytes need = buffer.shape.StorageBytes(buffer.dtype);
    if (buffer.size < need || need == Bytes() || need.overflowed()) {
      findings.Add(RejectionCode::kBufferTooSmall, Locate(draft, id),
                   "a buffer is smaller than its shape, or empty",
                   std::to_string(buffer.size.value()),
                   std::to_string(need.value()));
    }
    CheckPlace(draft, id, findings);
  }
}

}  // namespace signet::step::rules
