#pragma once
// The logits of some calls and the state of a sequence after them, to be
// compared bit for bit.

#include <map>
#include <string>
#include <vector>

#include "base/id.h"
#include "support/oracle_model.h"
#include "support/running_model.h"

namespace signet::testing {

struct Snapshot {
  std::vector<float> logits;
  std::map<std::string, OracleTensor> state;
};

/// Empty when the bits are equal; else where they first differ. NaN equals
/// NaN, and -0 is not 0.
std::string FirstDifference(const Snapshot& got, const Snapshot& want);

/// A decode step of one slot among others; `logits` keeps the rows of `slot`.
class SequenceUnderTest {
 public:
  SequenceUnderTest(RunningModel* model, SequenceSlot slot)
      : model_(*model), slot_(slot) {}

  void Prefill(const std::vector<int32_t>& ids);
  /// One step of slots 0 ... n - 1, where n is `ids.size()`.
  void DecodeAmong(const std::vector<int32_t>& ids);
  /// One step of this slot alone.
  void Decode(int32_t id);
  Snapshot Take() const;

 private:
  RunningModel& model_;
  SequenceSlot slot_;
  std::vector<float> logits_;
};

}  // namespace signet::testing
