// signet inspect: the manifest of a checkpoint.

#include <string>

#include "cli/command.h"
#include "cli/environment.h"
#include "cli/flags.h"
#include "cli/report.h"
#include "cli/standard_output.h"
#include "signet/source.h"

namespace signet::cli {
namespace {

constexpr const char* kExamples = R"(Examples:
  signet inspect demo
  signet inspect ./my-checkpoint --json

Config, tensors, expert groups, and what is skipped and why.)";

class InspectCommand : public Command {
 public:
  explicit InspectCommand(CLI::App& app) {
    app.footer(kExamples);
    AddModel(app, model_);
    AddJson(app, json_);
  }

  int Run() override {
    const Result<Source> source =
        Source::Open(model_, SearchPathsOfEnvironment());
    if (!source) return Report(source.error(), json_);
    const Result<std::string> text =
        json_ ? source->InspectJson() : source->InspectText();
    if (!text) return Report(text.error(), json_);
    return PrintResult(WithFinalNewline(*text));
  }

 private:
  std::string model_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeInspectCommand(CLI::App& app) {
  return std::make_unique<InspectCommand>(app);
}

}  // namespace signet::cli
