#pragma once
// A trace of the engine, looked into with taps: prefill in the chunks of its
// plan, then decode, over known tokens.

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "exec/tap.h"
#include "parity/trace.h"
#include "plan/plan_options.h"

namespace signet::testing {

/// Keeps the residual after every layer and the routes of every live row, in
/// the order of the calls. For calls of one sequence at a time.
class TraceRecorder final : public exec::TapObserver {
 public:
  void OnStep(std::string_view kind, std::span<const exec::TapBuffer> written,
              int64_t live_rows) override;

  /// Adds what was recorded to `trace`, and forgets it.
  void MoveInto(Trace* trace);

 private:
  void Append(const exec::TapBuffer& buffer, int64_t live_rows);
  std::map<std::string, OracleTensor> residual_;             // `residual.L`
  std::map<int, std::vector<std::vector<int32_t>>> routes_;  // by layer
};

struct EngineRun {
  Trace trace;  // of the prompt's positions and the fed tokens'
  /// The greedy choice after the prompt and after each fed token.
  std::vector<int32_t> sampled;
};

/// Runs `prompt`, then `fed` token by token, in a slot that is not the first,
/// beside a slot that holds pages of its own. `options.all_logits` is set.
EngineRun RunEngine(const std::filesystem::path& folder,
                    plan::PlanOptions options,
                    const std::vector<int32_t>& prompt,
                    const std::vector<int32_t>& fed);

}  // namespace signet::testing
