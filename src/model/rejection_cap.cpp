#include "model/rejection_cap.h"

#include <fmt/format.h>

namespace signet::model {

void CappedRejections::FlushInto(const std::string& where, RejectionList* out) {
  if (list_.empty()) return;
  out->Absorb(std::move(list_.Take().value()));
  for (int code = 0; code < kNumRejectionCodes; ++code) {
    const int more = counts_[static_cast<size_t>(code)] - kMaxOfOneCode;
    if (more <= 0) continue;
    out->Add(static_cast<RejectionCode>(code), where,
             "further refusals of this kind are not listed",
             fmt::format("{} more", more));
  }
}

}  // namespace signet::model
