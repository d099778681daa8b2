// P7: who sees an expert group cannot change what it says.
// expect: in read-only object

#include "plan/expert_plan.h"

namespace signet {

void Change(plan::ExpertView& view, int64_t width) {
#ifdef SIGNET_MUST_FAIL
  view->local_width = width;
#else
  width = view->local_width;
#endif
}

}  // namespace signet
