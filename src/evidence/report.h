#pragma once
// A verification for people and as JSON.

#include <nlohmann/json.hpp>
#include <string>

#include "evidence/verify.h"

namespace signet::evidence {

/// A row a side, what differs, and the verdict; ends with a newline.
std::string ReportText(const VerifyReport& report);

/// Keys are listed in docs/json.md.
nlohmann::ordered_json ReportJson(const VerifyReport& report);

/// `first`, `bitwise` or `bounded`.
std::string_view RuleName(const SideReport& side);

/// The largest differences over both passes.
MaxDifference LargestDifference(const SideReport& side);

}  // namespace signet::evidence
