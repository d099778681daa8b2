// signet program: a sealed program as text.

#include <limits>
#include <string>

#include "cli/command.h"
#include "cli/environment.h"
#include "cli/flags.h"
#include "cli/json_output.h"
#include "cli/report.h"
#include "cli/standard_output.h"
#include "signet/plan.h"
#include "signet/source.h"

namespace signet::cli {
namespace {

constexpr const char* kExamples = R"(Examples:
  signet program demo
  signet program demo --shape prefill
  signet program demo --shape decode --batch 4

The decode program is the one that serves --batch sequences at once; the
prefill program is that of the largest chunk.)";

class ProgramCommand : public Command {
 public:
  explicit ProgramCommand(CLI::App& app) {
    app.footer(kExamples);
    AddModel(app, model_);
    AddInteger(app, "--rank", "Rank whose program it is (default 0)", 0,
               std::numeric_limits<int>::max(),
               [this](int64_t value) { rank_ = static_cast<int>(value); });
    AddFlag(app, "--shape", "SHAPE", "decode or prefill (default decode)",
            [this](const std::string& value) -> std::string {
              if (value != "decode" && value != "prefill") {
                return "decode or prefill";
              }
              shape_ = value;
              return {};
            });
    AddPlanFlags(app, options_, threads_);
    AddJson(app, json_);
  }

  int Run() override {
    const Result<Source> source =
        Source::Open(model_, SearchPathsOfEnvironment());
    if (!source) return Report(source.error(), json_);
    const Result<Plan> plan = Plan::Make(*source, options_);
    if (!plan) return Report(plan.error(), json_);
    const bool decode = shape_ == "decode";
    const Result<std::string> text = plan->ProgramText(
        rank_, decode ? ShapeKind::kDecode : ShapeKind::kPrefill,
        decode ? options_.batch : 0);
    if (!text) return Report(text.error(), json_);
    return PrintResult(
        json_ ? ProgramJson(plan->contract_id(), rank_, shape_, *text)
              : WithFinalNewline(*text));
  }

 private:
  std::string model_;
  std::string shape_ = "decode";
  int rank_ = 0;
  PlanOptions options_;
  int threads_ = 0;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeProgramCommand(CLI::App& app) {
  return std::make_unique<ProgramCommand>(app);
}

}  // namespace signet::cli
