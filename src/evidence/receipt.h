#pragma once
// A verification on record (contract E2): what was compared, by which code, on
// which devices, with which digests. One JSON object a file. Receipts come from
// anywhere: reading one proves its form, never its truth.

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "evidence/verify.h"
#include "topology/mesh.h"

namespace signet::evidence {

/// What a receipt is checked and renewed by. Strings hold no control
/// character; digests are as printed.
struct Receipt {
  std::string execution_code;
  bool holds = false;
  std::string headers;                 // digests of the model
  std::string tokenizer;               //
  std::optional<std::string> content;  // where it was computed
  std::string model;                   // as it was asked for
  std::optional<std::string> prompt_text;
  std::vector<int32_t> prompt;
  int64_t positions = 0;
  PlanOptions options;
  struct Side {
    SideRequest request;
    std::string contract;
    // As recorded: they need not be of this machine.
    std::vector<topology::DeviceIdentity> devices;
  };
  std::vector<Side> sides;
};

/// `build`: the build id of the program.
nlohmann::ordered_json ReceiptJson(const VerifyReport& report,
                                   const std::string& build);

/// kJsonInvalid with the first thing that is wrong. `where` is for the
/// message.
Result<Receipt> ParseReceipt(std::string_view text, const std::string& where);
Result<Receipt> ReadReceipt(const std::filesystem::path& file);

/// Whether `file` may be written: there is nothing yet, or a receipt.
Result<void> CheckReceiptPlace(const std::filesystem::path& file);
/// The whole file or none of it: written beside `file`, then renamed. Asks
/// CheckReceiptPlace again.
Result<void> WriteReceipt(const nlohmann::ordered_json& receipt,
                          const std::filesystem::path& file);

/// The command that makes the receipt anew, for a shell.
std::string RenewingCommand(const Receipt& receipt,
                            const std::filesystem::path& file);

}  // namespace signet::evidence
