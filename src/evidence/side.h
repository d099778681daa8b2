#pragma once
// A side of a comparison that runs: fed tokens, it tells what it saw. One
// thread.

#include <cstdint>
#include <span>

#include "base/result.h"
#include "evidence/record.h"

namespace signet::evidence {

class Side {
 public:
  virtual ~Side() = default;
  /// The next chunk of a prompt of which `rest` is left; how much of it was
  /// taken is in the record.
  virtual Result<CallRecord> Prefill(std::span<const int32_t> rest) = 0;
  /// One token more.
  virtual Result<CallRecord> Decode(int32_t id) = 0;
  /// The whole live state: all positions of the KV cache.
  virtual CallRecord FinalState() = 0;
};

}  // namespace signet::evidence
