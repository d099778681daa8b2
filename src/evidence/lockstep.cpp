#include "evidence/lockstep.h"

#include <optional>
#include <span>
#include <utility>

#include "base/check.h"

namespace signet::evidence {

Result<std::vector<int32_t>> RunLockstep(Side& first, Side* other,
                                         const Feed& feed,
                                         const OnCall& on_call) {
  const auto length = static_cast<int64_t>(feed.prompt.size());
  SIGNET_CHECK(length > 0 && feed.other_prompt.size() == feed.prompt.size() &&
               feed.positions >= length);
  std::vector<int32_t> drawn;
  int64_t done = 0;
  while (done < feed.positions) {
    const auto step = [&](Side& side, const std::vector<int32_t>& prompt) {
      return done < length ? side.Prefill(std::span(prompt).subspan(
                                 static_cast<size_t>(done)))
                           : side.Decode(drawn.back());
    };
    SIGNET_ASSIGN_OR_RETURN(const CallRecord record, step(first, feed.prompt));
    std::optional<CallRecord> others;
    if (other != nullptr) {
      SIGNET_ASSIGN_OR_RETURN(others, step(*other, feed.other_prompt));
      // Chunks follow from the prompt's length and the plan's list alone.
      SIGNET_CHECK(others->rows == record.rows);
    }
    on_call(record, others ? &*others : nullptr);
    done += record.rows;
    if (done >= length) drawn.push_back(record.next_token());
  }
  const CallRecord state = first.FinalState();
  if (other != nullptr) {
    const CallRecord others = other->FinalState();
    on_call(state, &others);
  } else {
    on_call(state, nullptr);
  }
  return drawn;
}

}  // namespace signet::evidence
