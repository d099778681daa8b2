#pragma once
// What this program was built from. The definition is written by
// tools/build_facts.py in every build.

#include <string>

namespace signet::evidence {

struct BuildFacts {
  std::string commit;          // "+" behind it: with changes; empty: unknown
  std::string execution_code;  // digest of the code below the engine (E2)
  std::string compiler;
  std::string flags;
};

BuildFacts FactsOfThisBuild();

}  // namespace signet::evidence
