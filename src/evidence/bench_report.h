#pragma once
// A bench for people and as JSON (docs/bench.md, docs/json.md).

#include <nlohmann/json.hpp>
#include <string>

#include "evidence/bench.h"

namespace signet::evidence {

/// `build`: the build id of the program.
std::string BenchText(const BenchReport& report, const std::string& build);
nlohmann::ordered_json BenchJson(const BenchReport& report,
                                 const std::string& build);

}  // namespace signet::evidence
