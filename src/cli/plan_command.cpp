// signet plan: what would be placed where, from headers alone.

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <string>

#include "cli/command.h"
#include "cli/environment.h"
#include "cli/exit_code.h"
#include "cli/flags.h"
#include "cli/json_output.h"
#include "cli/report.h"
#include "cli/standard_output.h"
#include "signet/plan.h"
#include "signet/source.h"

namespace signet::cli {
namespace {

constexpr const char* kExamples = R"(Examples:
  signet plan demo
  signet plan qwen3.6:35b-a3b --ctx 32768 --batch 4
  signet plan demo --json

Reads headers only and takes no memory of any device. A plan that exists is
printed even if it does not fit; then what is short follows on stderr and the
exit status is 3.)";

class PlanCommand : public Command {
 public:
  explicit PlanCommand(CLI::App& app) {
    app.footer(kExamples);
    AddModel(app, model_);
    AddPlanFlags(app, options_, threads_);
    AddJson(app, json_);
  }

  int Run() override {
    const Result<Source> source =
        Source::Open(model_, SearchPathsOfEnvironment());
    if (!source) return Report(source.error(), json_);
    const auto start = std::chrono::steady_clock::now();
    const Result<Plan> plan = Plan::Make(*source, options_);
    const std::chrono::duration<double, std::milli> elapsed =
        std::chrono::steady_clock::now() - start;
    if (!plan) return Report(plan.error(), json_);

    const Result<void> admission = plan->Admission();
    const Result<std::string> text = json_ ? plan->Json() : plan->Text();
    if (!text) return Report(text.error(), json_);
    const int printed = PrintResult(json_ ? PlanJson(*text, admission)
                                          : WithFinalNewline(*text));
    if (printed != kExitDone) return printed;
    const SealingFigures sealing = plan->sealing();
    fmt::print(stderr,
               "planned in {:.1f} ms; {} programs of {} steps sealed in {:.1f} "
               "ms of it\n",
               elapsed.count(), sealing.programs, sealing.steps,
               sealing.milliseconds);
    if (admission) return kExitDone;
    // With --json the object on stdout already holds the refusal.
    return json_ ? ExitCode(admission.error())
                 : Report(admission.error(), json_);
  }

 private:
  std::string model_;
  PlanOptions options_;
  int threads_ = 0;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> MakePlanCommand(CLI::App& app) {
  return std::make_unique<PlanCommand>(app);
}

}  // namespace signet::cli
