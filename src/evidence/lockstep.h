#pragma once
// Runs one or two sides over the same tokens in step: the prompt in the chunks
// of the plan, then token by token what the first side draws (contract N5:
// teacher-forced).

#include <cstdint>
#include <functional>
#include <vector>

#include "base/result.h"
#include "evidence/side.h"

namespace signet::evidence {

struct Feed {
  std::vector<int32_t> prompt;        // not empty
  std::vector<int32_t> other_prompt;  // of the same length
  int64_t positions;                  // fed in all; at least the prompt
};

/// After each call; `other` is null where one side runs alone.
using OnCall =
    std::function<void(const CallRecord& first, const CallRecord* other)>;

/// The tokens the first side drew. The last call is of both final states.
Result<std::vector<int32_t>> RunLockstep(Side& first, Side* other,
                                         const Feed& feed,
                                         const OnCall& on_call);

}  // namespace signet::evidence
