// P7: nobody but the expert plan can make an ExpertView.
// expect: PassKey<Holder>::PassKey\(\).* is private

#include "plan/expert_plan.h"

namespace signet {

plan::ExpertView Forge(const plan::ExpertView& view) {
#ifdef SIGNET_MUST_FAIL
  return plan::ExpertView(PassKey<plan::ExpertPlan>(), view.facts(),
                          view.partition());
#else
  return view;
#endif
}

}  // namespace signet
