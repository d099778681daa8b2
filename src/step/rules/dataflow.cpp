// S3: the order of reads and writes. How the ranks hold each buffer is in
// parts.cpp.

#include <string>

#include "step/operands.h"
#include "step/rules/location.h"
#include "step/rules/parts.h"
#include "step/rules/rules.h"

namespace signet::step::rules {
namespace {

class OrderRules {
 public:
  OrderRules(const ProgramDraft& draft, Findings& findings)
      : draft_(draft), findings_(findings), written_(draft.buffers.size()) {}

  void Run() {
    for (size_t i = 0; i < draft_.steps.size(); ++i) {
      // A step reads before it writes, so its own results are not there yet.
      ForEachOperand(draft_.steps[i],
                     [&](std::string_view name, BufferId id, Access access) {
                       if (access == Access::kRead) Read(i, name, id);
                     });
      ForEachOperand(draft_.steps[i],
                     [&](std::string_view name, BufferId id, Access access) {
                       if (access == Access::kWrite) Write(i, name, id);
                       if (access == Access::kUpdate) Update(i, name, id);
                     });
    }
    for (size_t i = 0; i < draft_.buffers.size(); ++i) {
      const BufferId id(static_cast<int32_t>(i));
      if (draft_.buffers[id].kind != BufferKind::kWork || written_[id] != 0) {
        continue;
      }
      findings_.Add(RejectionCode::kReadBeforeWrite, Locate(draft_, id),
                    "a work buffer is never written");
    }
  }

 private:
  void Read(size_t index, std::string_view name, BufferId id) {
    const BufferKind kind = draft_.buffers[id].kind;
    // State holds earlier positions from before the call; those of the call
    // itself are there once its step has updated it.
    const bool made_here =
        kind == BufferKind::kWork || kind == BufferKind::kState;
    if (!made_here || written_[id] != 0) return;
    findings_.Add(RejectionCode::kReadBeforeWrite,
                  Locate(draft_, index, name, id),
                  "a buffer is read before a step has written it");
  }

  void Write(size_t index, std::string_view name, BufferId id) {
    const BufferKind kind = draft_.buffers[id].kind;
    if (kind != BufferKind::kWork) {
      Twice(index, name, id, "a step writes what it may only read or update",
            kind);
    } else if (written_[id] != 0) {
      Twice(index, name, id, "a buffer has two writers", kind);
    }
    written_[id] = 1;
  }

  void Update(size_t index, std::string_view name, BufferId id) {
    const BufferKind kind = draft_.buffers[id].kind;
    if (kind == BufferKind::kFlag) return;
    if (kind != BufferKind::kState) {
      Twice(index, name, id, "only state and flags are updated in place", kind);
    } else if (written_[id] != 0) {
      Twice(index, name, id, "state is updated twice in one call", kind);
    }
    written_[id] = 1;
  }

  void Twice(size_t index, std::string_view name, BufferId id,
             std::string message, BufferKind kind) {
    findings_.Add(RejectionCode::kWrittenTwice, Locate(draft_, index, name, id),
                  std::move(message), std::string(Name(kind)));
  }

  const ProgramDraft& draft_;
  Findings& findings_;
  IdVector<BufferId, uint8_t> written_;
};

}  // namespace

void CheckDataflow(const ProgramDraft& draft, const MeshContext& context,
                   Findings& findings) {
  OrderRules(draft, findings).Run();
  PartRules(draft, context, findings).Run();
}

}  // namespace signet::step::rules
