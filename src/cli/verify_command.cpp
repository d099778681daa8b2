// signet verify: sides of one model compared with the first.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/build_id.h"
#include "cli/command.h"
#include "cli/environment.h"
#include "cli/exit_code.h"
#include "cli/flags.h"
#include "cli/json_output.h"
#include "cli/report.h"
#include "cli/signals.h"
#include "cli/standard_output.h"
#include "evidence/fault.h"
#include "evidence/receipt.h"
#include "evidence/report.h"
#include "evidence/verify.h"

namespace signet::cli {
namespace {

constexpr const char* kExamples = R"(Examples:
  signet verify demo --mesh single --mesh ep=2 --mesh ep=4 -n 128
  signet verify demo --mesh single --mesh ep=2@cpu:4,cpu:5
  signet verify demo --mesh single --mesh ep=2 --inject swap-experts
  signet verify demo --mesh single --mesh ep=2 --out evidence/ep2.json

Every side is compared with the first: tokens, logits and state of the programs
that serve, then the same and all that lies between with every step looked at.
Exit status 0: all hold. 4: a side is different.)";

std::string FaultNames() {
  std::vector<std::string_view> names;
  for (const evidence::Fault fault : evidence::kAllFaults) {
    names.push_back(Name(fault));
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

class VerifyCommand : public Command {
 public:
  explicit VerifyCommand(CLI::App& app) {
    app.footer(kExamples);
    AddModel(app, request_.model);
    app.add_option_function<std::vector<std::string>>(
           "--mesh",
           [this](const std::vector<std::string>& specs) {
             for (const std::string& spec : specs) AddSide(spec);
           },
           "A side: `single`, or axes as `ep=2`; with devices of its own as "
           "`ep=2@cpu:0,cpu:1`. The first is what the others are compared "
           "with (default single)")
        ->type_name("SPEC")
        ->allow_extra_args(false)
        ->check([](const std::string& spec) -> std::string {
          if (!spec.empty() && spec.front() != '@' && spec.back() != '@') {
            return {};
          }
          return fmt::format("got \"{}\", want SPEC or SPEC@LIST", spec);
        });
    AddPrompt(app, request_.prompt);
    AddInteger(app, "-n",
               fmt::format("Positions compared, the prompt's included "
                           "(default {})",
                           evidence::kDefaultPositions),
               1, std::numeric_limits<int64_t>::max(),
               [this](int64_t value) { request_.positions = value; });
    CLI::Option* const inject = AddFlag(
        app, "--inject", "FAULT",
        "Make a mistake on every side but the first, to see it found: " +
            FaultNames(),
        [this](const std::string& value) -> std::string {
          request_.fault = evidence::ParseFault(value);
          return request_.fault ? "" : "one of " + FaultNames();
        });
    app.add_option("--out", out_,
                   "Write a receipt (signet evidence check); a receipt that "
                   "is there is replaced, nothing else")
        ->type_name("FILE")
        ->excludes(inject)
        ->check([](const std::string& file) {
          return std::string(file.empty() ? "got \"\", want a file" : "");
        });
    AddDeviceAndSizeFlags(app, request_.options, request_.threads);
    AddVerifyFiles(app, request_.verify_files);
    AddJson(app, json_);
  }

  int Run() override {
    if (json_) TellSignalsInJson();
    request_.paths = SearchPathsOfEnvironment();
    if (request_.sides.empty()) AddSide("single");
    if (!out_.empty()) {
      const Result<void> place = evidence::CheckReceiptPlace(out_);
      if (!place) return Report(place.error(), json_);
    }
    const Result<evidence::VerifyReport> report = evidence::Verify(request_);
    if (!report) return Report(report.error(), json_);
    if (!out_.empty()) {
      const Result<void> written = evidence::WriteReceipt(
          evidence::ReceiptJson(*report, BuildId()), out_);
      if (!written) return Report(written.error(), json_);
    }
    const int printed =
        PrintResult(json_ ? ToJson(*report) : evidence::ReportText(*report));
    if (printed != kExitDone) return printed;
    return report->holds() ? kExitDone : kExitDifferent;
  }

 private:
  void AddSide(const std::string& spec) {
    const size_t at = spec.find('@');
    request_.sides.push_back(
        {.mesh = spec.substr(0, at),
         .devices = at == std::string::npos ? "" : spec.substr(at + 1)});
  }

  std::string ToJson(const evidence::VerifyReport& report) const {
    nlohmann::ordered_json json = evidence::ReportJson(report);
    json["receipt"] = out_.empty() ? nlohmann::ordered_json(nullptr)
                                   : nlohmann::ordered_json(out_);
    return JsonLine(json);
  }

  evidence::VerifyRequest request_;
  std::string out_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeVerifyCommand(CLI::App& app) {
  return std::make_unique<VerifyCommand>(app);
}

}  // namespace signet::cli
