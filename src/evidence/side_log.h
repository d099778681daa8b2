#pragma once
// What is kept of a side's run of one pass: digests, counts and what it found
// wrong with itself. The values themselves are gone after each call.

#include <cstdint>
#include <string>
#include <vector>

#include "base/digest.h"
#include "evidence/record.h"

namespace signet::evidence {

class SideLog {
 public:
  void Add(const CallRecord& record);

  /// One a position: everything the pass showed of it.
  std::vector<Digest> PositionDigests() const;
  const std::vector<SelfFault>& faults() const { return faults_; }
  int64_t num_faults() const { return num_faults_; }
  int64_t collectives() const { return collectives_; }  // of all calls
  int64_t calls() const { return calls_; }
  /// Expert slots each rank computed; empty without taps.
  const std::vector<int64_t>& rank_slots() const { return rank_slots_; }

  /// What both passes of a side must agree in: token, last logits and state
  /// of every call. Told as faults.
  std::vector<SelfFault> CompareWithTaps(const SideLog& tapped) const;

 private:
  // A call as any program of the side must show it.
  struct Seal {
    int64_t position;  // of the last row
    int32_t token;     // -1: the final state
    Digest logits;     // of the last row
    Digest state;
  };
  std::vector<Seal> seals_;
  std::vector<Digester> digesters_;  // [position]
  std::vector<SelfFault> faults_;    // the first of them
  int64_t num_faults_ = 0;
  int64_t collectives_ = 0;
  int64_t calls_ = 0;
  std::vector<int64_t> rank_slots_;
};

}  // namespace signet::evidence
