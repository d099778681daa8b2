// P7: an ExpertView leads to no store or allocator.
// expect: has no member named .*store

#include "plan/expert_plan.h"

namespace signet {

int64_t Look(const plan::ExpertView& view) {
#ifdef SIGNET_MUST_FAIL
  return view.store().Load(view->layer);
#else
  return view->layer.value();
#endif
}

}  // namespace signet
