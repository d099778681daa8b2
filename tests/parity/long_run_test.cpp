// Two thousand tokens, each drawn after all before it: numbers stay numbers,
// and late logits are as near to fp64 as early ones.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "engine/demo_engine.h"
#include "parity/comparison.h"
#include "parity/engine_trace.h"
#include "support/oracle.h"

namespace signet::testing {
namespace {

constexpr int64_t kTokens = 2000;
constexpr int64_t kContext = 2048;
constexpr size_t kSampled = 20;

// What the program says when asked, through the public API.
struct Generated {
  std::vector<int32_t> prompt;
  std::vector<int32_t> tokens;
};
Generated Generate() {
  const Model model = LoadDemo({.context = kContext});
  Generated generated;
  generated.prompt = ValueOrDie(model.Encode("Alice was"));
  Session session = ValueOrDie(Session::Make(model, 1));
  const Request request = {
      .prompt = generated.prompt, .max_tokens = kTokens, .ignore_eos = true};
  generated.tokens = GenerateAll(session, {request}).front().ids;
  return generated;
}

// How far the least of the chosen experts lies under the best of the others;
// at most 0 where the choice is fp64's own.
double Regret(const std::vector<double>& scores,
              const std::vector<int32_t>& chosen) {
  double least = std::numeric_limits<double>::infinity();
  double best = -least;
  for (size_t e = 0; e < scores.size(); ++e) {
    if (std::count(chosen.begin(), chosen.end(), static_cast<int32_t>(e)) > 0) {
      least = std::min(least, scores[e]);
    } else {
      best = std::max(best, scores[e]);
    }
  }
  return best - least;
}

TEST(LongRun, TwoThousandTokensKeepTheBoundOfLogits) {
  const Generated generated = Generate();
  ASSERT_EQ(generated.tokens.size(), static_cast<size_t>(kTokens));
  std::vector<int32_t> fed = generated.tokens;
  fed.pop_back();
  const EngineRun engine =
      RunEngine(DemoFolder(), {.context = kContext}, generated.prompt, fed);
  EXPECT_EQ(engine.sampled, generated.tokens);
  for (const auto& [name, tensor] : engine.trace.tensors) {
    EXPECT_TRUE(std::all_of(tensor.data.begin(), tensor.data.end(),
                            [](double x) { return std::isfinite(x); }))
        << name;
  }

  const OracleModel model = LoadOracleModel(DemoFolder());
  Oracle oracle(model);
  std::vector<int32_t> all = generated.prompt;
  all.insert(all.end(), fed.begin(), fed.end());
  const OracleTensor& logits = engine.trace.tensors.at("logits");
  const auto vocabulary = static_cast<size_t>(logits.shape[1]);
  const size_t stride = all.size() / kSampled;
  double worst = 0;
  double worst_regret = 0;
  for (size_t p = 0; p < all.size(); ++p) {
    // Fed the engine's experts, so that a near tie parts nobody.
    std::vector<std::vector<int32_t>> experts;
    for (const auto& layer : engine.trace.routes) experts.push_back(layer[p]);
    const OracleStep step = oracle.Step(all[p], experts);
    for (size_t layer = 0; layer < experts.size(); ++layer) {
      worst_regret = std::max(
          worst_regret, Regret(step.router_logits[layer], experts[layer]));
    }
    if (p % stride != stride - 1) continue;
    const double* row = logits.data.data() + p * vocabulary;
    double error = 0;
    for (size_t i = 0; i < vocabulary; ++i) {
      error = std::max(error, std::abs(row[i] - step.logits[i]));
    }
    EXPECT_LE(error, BoundOf("logits")) << "position " << p;
    worst = std::max(worst, error);
  }
  EXPECT_LT(worst_regret, kExcusedMargin);
  std::printf("logits at %zu positions: %.2e of %.2e\n", kSampled, worst,
              BoundOf("logits"));
}

}  // namespace
}  // namespace signet::testing
