#pragma once
// signet evidence check: which receipts still hold for this program and the
// models on this machine (contract E2).

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "signet/source.h"

namespace signet::evidence {

enum class ReceiptState {
  kHolds,
  kVoid,       // code, contract or model is another now
  kDifferent,  // it records a difference
  kInvalid,    // no receipt
};
std::string_view Name(ReceiptState state);

struct CheckedReceipt {
  std::filesystem::path file;
  ReceiptState state;
  std::vector<std::string> causes;  // empty when it holds
  std::string command;              // that renews it; empty when invalid
};

/// Every file of `folder` ending in .json, by name. kFileMissing without the
/// folder. `verify_files`: all weights of a model are read where a receipt has
/// their digest.
Result<std::vector<CheckedReceipt>> CheckReceipts(
    const std::filesystem::path& folder, const SearchPaths& paths,
    bool verify_files = false);

std::string CheckText(const std::filesystem::path& folder,
                      const std::vector<CheckedReceipt>& receipts);
/// Keys are listed in docs/json.md.
nlohmann::ordered_json CheckJson(const std::filesystem::path& folder,
                                 const std::vector<CheckedReceipt>& receipts);

}  // namespace signet::evidence
