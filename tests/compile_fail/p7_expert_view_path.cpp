// P7: an ExpertView has no file of a weight.
// expect: has no member named .*source

#include "plan/expert_plan.h"

namespace signet {

int64_t Look(const plan::ExpertView& view) {
#ifdef SIGNET_MUST_FAIL
  return view.partition().front().source.file.value();
#else
  return view.partition().front().owner.value();
#endif
}

}  // namespace signet
