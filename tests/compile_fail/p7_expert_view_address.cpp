// P7: an ExpertView has no address of a weight.
// expect: has no member named .*data

#include "plan/expert_plan.h"

namespace signet {

int64_t Look(const plan::ExpertView& view) {
#ifdef SIGNET_MUST_FAIL
  return view.facts().data != nullptr;
#else
  return view.facts().num_local;
#endif
}

}  // namespace signet
