#pragma once
// Watches one rank's programs bound with taps: keeps what every layer computed,
// counts collectives, and proves by the data the steps wrote that foreign
// expert slots were skipped (contract E1, X3). Used by the rank's driver
// thread during a call and by the owner between calls.

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/digest.h"
#include "base/id.h"
#include "evidence/record.h"
#include "exec/bound_program.h"
#include "exec/tap.h"
#include "plan/model_plan.h"
#include "step/program.h"

namespace signet::evidence {

/// One rank's view of one call.
struct RankRecord {
  /// Values are dropped where only digests are kept.
  struct Entry {
    Piece piece;
    std::vector<Digest> rows;
  };
  std::vector<Entry> entries;
  std::vector<ScheduleRow> collectives;  // in the order met
  std::map<int32_t, int64_t> slots;      // by layer: computed here
  std::vector<SelfFault> faults;
};

enum class Keep { kValues, kDigests };

class Recorder final : public exec::TapObserver {
 public:
  /// `plan` must outlive this.
  Recorder(const plan::ModelPlan* plan, Rank rank, Keep keep)
      : plan_(plan), rank_(rank), keep_(keep) {}

  /// The next call runs `bound`, which was bound from `program`; its first row
  /// is at `position`. Both must live through the call.
  void Begin(const step::SealedProgram* program,
             const exec::BoundProgram* bound, int64_t position);
  void OnStep(std::string_view kind, std::span<const exec::TapBuffer> written,
              int64_t live_rows) override;
  RankRecord Take() { return std::move(record_); }

 private:
  using Written = std::span<const exec::TapBuffer>;
  // Rows of slots that are not this rank's, before a step that must leave them
  // alone.
  struct Untouched {
    const exec::TapBuffer* buffer;
    std::vector<std::byte> rows;
  };

  const exec::TapBuffer& Find(BufferId id, Written written) const;
  bool IsWhole(BufferId id) const;
  void Record(What what, BufferId id, Written written, int64_t rows);
  void Meet(ScheduleRow row) { record_.collectives.push_back(row); }
  void Route(const step::MoeRoute& route, Written written, int64_t rows);
  void CheckScatter(const step::MoeScatter& scatter, Written written);
  void Watch(size_t step);
  void CheckUntouched();
  void Fault(std::string what, std::string message);

  const plan::ModelPlan* plan_;
  Rank rank_;
  Keep keep_;
  const step::SealedProgram* program_ = nullptr;
  const exec::BoundProgram* bound_ = nullptr;
  int64_t position_ = 0;
  size_t step_ = 0;
  int32_t layer_ = kNoLayer;
  int64_t adds_ = 0;           // residual additions within the layer
  bool combined_ = false;      // its reduction is to come
  std::set<BufferId> scores_;  // what the program's routes read
  std::vector<bool> own_;      // [live * K]: the slot's expert is this rank's
  std::vector<Untouched> untouched_;
  RankRecord record_;
};

}  // namespace signet::evidence
