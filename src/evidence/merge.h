#pragma once
// What the ranks of one side saw of a call, made into one record: values of the
// first rank that has them, and a fault wherever ranks that should agree do not
// (contract E1, X3, X7).

#include <cstdint>
#include <vector>

#include "evidence/record.h"
#include "evidence/recorder.h"
#include "plan/model_plan.h"

namespace signet::evidence {

/// Taps of every rank, in rank order. Told besides: expert slots that do not
/// add up, and ranks that did not meet their rows of the schedule in order.
void MergeTaps(const plan::ModelPlan& plan, std::vector<RankRecord> ranks,
               CallRecord* record);

/// What a rank's program has put out; null where it has none, or not the whole
/// vocabulary.
struct RankOutputs {
  const float* logits = nullptr;     // [rows, vocab]
  const int32_t* sampled = nullptr;  // [rows]
};

/// Logits and tokens of the last `rows` rows. At least one rank has both; every
/// rank that has either must have the same.
void MergeOutputs(const std::vector<RankOutputs>& ranks, int64_t rows,
                  int64_t vocab, CallRecord* record);

}  // namespace signet::evidence
