#pragma once
// Flags with values. CLI11's own conversions accept what overflows and say
// little about what is wrong, so every value is parsed here: the option's
// check is the parse, and what it refuses is a usage error with flag and value.

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "signet/plan.h"

namespace signet::cli {

/// The whole of `text` as a decimal number; nothing for anything else and for
/// what the type cannot hold.
std::optional<int64_t> ParseInteger(std::string_view text);
std::optional<uint64_t> ParseUnsigned(std::string_view text);
/// Finite numbers only.
std::optional<float> ParseNumber(std::string_view text);
/// Token ids, `1,2,3`: at least one, none negative.
std::optional<std::vector<int32_t>> ParseIds(std::string_view text);

/// What is wanted, if `text` is wrong; else empty, and the value is stored.
/// The targets of all flags outlive the parse.
using StoreValue = std::function<std::string(const std::string& text)>;

CLI::Option* AddFlag(CLI::App& app, const std::string& names,
                     const std::string& type, const std::string& description,
                     StoreValue store);

CLI::Option* AddInteger(CLI::App& app, const std::string& names,
                        const std::string& description, int64_t min,
                        int64_t max, std::function<void(int64_t)> store);

/// MODEL, required.
void AddModel(CLI::App& app, std::string& model);
/// --json.
void AddJson(CLI::App& app, bool& json);
/// -p and --ids, of which one may be given. `prompt` is the text or the ids.
using Prompt = std::variant<std::vector<int32_t>, std::string>;
void AddPrompt(CLI::App& app, std::optional<Prompt>& prompt);
/// --seed.
void AddSeed(CLI::App& app, const std::string& description,
             std::function<void(uint64_t)> store);
/// --threads.
void AddThreads(CLI::App& app, int& threads);
/// --verify-files.
void AddVerifyFiles(CLI::App& app, bool& verify_files);
/// --devices --experts --ctx --batch --kv --threads.
void AddDeviceAndSizeFlags(CLI::App& app, PlanOptions& options, int& threads);
/// --mesh and those.
void AddPlanFlags(CLI::App& app, PlanOptions& options, int& threads);

}  // namespace signet::cli
