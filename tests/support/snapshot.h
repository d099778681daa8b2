#pragma once
// The logits of some calls, the tokens drawn from them and the state of a
// sequence after them, to be compared bit for bit.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/id.h"
#include "support/oracle_model.h"
#include "support/running_model.h"

namespace signet::testing {

struct Snapshot {
  std::vector<float> logits;
  std::vector<int32_t> drawn;  // one a call
  std::string failure;         // of the model, where it keeps one
  std::map<std::string, OracleTensor> state;
};

/// Empty when the bits are equal; else where they first differ. NaN equals
/// NaN, and -0 is not 0.
std::string FirstDifference(const Snapshot& got, const Snapshot& want);

/// Calls of one slot, alone or among others; keeps the rows of `slot`. For
/// plans whose prefill has logits of the last row.
class SequenceUnderTest {
 public:
  SequenceUnderTest(RunningModel* model, SequenceSlot slot)
      : model_(*model), slot_(slot) {}

  void Prefill(const std::vector<int32_t>& ids);
  /// One step of `slots`, ascending, this one among them.
  void DecodeAmong(const std::vector<SequenceSlot>& slots,
                   const std::vector<int32_t>& ids);
  /// One step of slots 0 ... n - 1, where n is `ids.size()`.
  void DecodeAmong(const std::vector<int32_t>& ids);
  /// One step of this slot alone.
  void Decode(int32_t id);
  Snapshot Take() const;

 private:
  RunningModel& model_;
  SequenceSlot slot_;
  std::vector<float> logits_;
  std::vector<int32_t> drawn_;
};

}  // namespace signet::testing
