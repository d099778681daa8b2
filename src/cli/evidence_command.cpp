// signet evidence check: which receipts still hold.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/environment.h"
#include "cli/exit_code.h"
#include "cli/flags.h"
#include "cli/json_output.h"
#include "cli/report.h"
#include "cli/standard_output.h"
#include "evidence/check.h"

namespace signet::cli {
namespace {

constexpr const char* kExamples = R"(Examples:
  signet evidence check
  signet evidence check ./receipts --strict

A receipt is void when the code it was made with, the contract of a side or the
model is another now; the command that renews it is printed. Weights of other
values in files of the same form are seen with --verify-files alone, by receipts
with a digest of the weights. Exit status 0; with --strict 4 unless all hold.)";

class EvidenceCommand : public Command {
 public:
  explicit EvidenceCommand(CLI::App& app) {
    app.footer(kExamples);
    app.require_subcommand(1);
    CLI::App& check = *app.add_subcommand(
        "check", "List receipts: which hold, which are void and why");
    check.footer(kExamples);
    check
        .add_option("DIR", folder_, "The folder of receipts (default evidence)")
        ->type_name("");
    check.add_flag("--strict", strict_, "Exit status 4 unless all hold");
    check.add_flag("--verify-files", verify_files_,
                   "Read all weights where a receipt has their digest");
    AddJson(check, json_);
  }

  int Run() override {
    const Result<std::vector<evidence::CheckedReceipt>> receipts =
        evidence::CheckReceipts(folder_, SearchPathsOfEnvironment(),
                                verify_files_);
    if (!receipts) return Report(receipts.error(), json_);
    const int printed =
        PrintResult(json_ ? JsonLine(evidence::CheckJson(folder_, *receipts))
                          : evidence::CheckText(folder_, *receipts));
    if (printed != kExitDone) return printed;
    for (const evidence::CheckedReceipt& receipt : *receipts) {
      if (strict_ && receipt.state != evidence::ReceiptState::kHolds) {
        return kExitDifferent;
      }
    }
    return kExitDone;
  }

 private:
  std::string folder_ = "evidence";
  bool strict_ = false;
  bool verify_files_ = false;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeEvidenceCommand(CLI::App& app) {
  return std::make_unique<EvidenceCommand>(app);
}

}  // namespace signet::cli
