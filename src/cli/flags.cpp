#include "cli/flags.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <limits>
#include <system_error>
#include <utility>

namespace signet::cli {
namespace {

template <typename T>
std::optional<T> ParseWhole(std::string_view text) {
  T value{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

}  // namespace

std::optional<int64_t> ParseInteger(std::string_view text) {
  return ParseWhole<int64_t>(text);
}

std::optional<uint64_t> ParseUnsigned(std::string_view text) {
  return ParseWhole<uint64_t>(text);
}

std::optional<float> ParseNumber(std::string_view text) {
  const std::optional<float> value = ParseWhole<float>(text);
  if (!value || !std::isfinite(*value)) return std::nullopt;
  return value;
}

std::optional<std::vector<int32_t>> ParseIds(std::string_view text) {
  std::vector<int32_t> ids;
  while (true) {
    const size_t comma = text.find(',');
    const auto id = ParseWhole<int32_t>(text.substr(0, comma));
    if (!id || *id < 0) return std::nullopt;
    ids.push_back(*id);
    if (comma == std::string_view::npos) return ids;
    text.remove_prefix(comma + 1);
  }
}

CLI::Option* AddFlag(CLI::App& app, const std::string& names,
                     const std::string& type, const std::string& description,
                     StoreValue store) {
  return app.add_option(names, description)
      ->type_name(type)
      ->check([store = std::move(store)](const std::string& text) {
        const std::string want = store(text);
        if (want.empty()) return std::string();
        return fmt::format("got \"{}\", want {}", text, want);
      });
}

CLI::Option* AddInteger(CLI::App& app, const std::string& names,
                        const std::string& description, int64_t min,
                        int64_t max, std::function<void(int64_t)> store) {
  return AddFlag(
      app, names, "N", description,
      [=, store = std::move(store)](const std::string& text) -> std::string {
        const std::optional<int64_t> value = ParseInteger(text);
        if (value && *value >= min && *value <= max) {
          store(*value);
          return {};
        }
        if (min == std::numeric_limits<int64_t>::min()) {
          return "a whole number of 64 bits";
        }
        return fmt::format("a whole number, {} to {}", min, max);
      });
}

void AddModel(CLI::App& app, std::string& model) {
  app.add_option("MODEL", model,
                 "A folder in the Hugging Face layout, or a registry name "
                 "(signet models)")
      ->type_name("")
      ->required();
}

void AddJson(CLI::App& app, bool& json) {
  app.add_flag("--json", json, "Print one JSON object (docs/json.md)");
}

void AddPrompt(CLI::App& app, std::optional<Prompt>& prompt) {
  CLI::Option* const text =
      AddFlag(app, "-p", "TEXT", "The prompt",
              [&prompt](const std::string& value) -> std::string {
                prompt = value;
                return {};
              });
  AddFlag(app, "--ids", "LIST",
          "The prompt as token ids, `1,2,3`; needs no tokenizer",
          [&prompt](const std::string& value) -> std::string {
            const auto ids = ParseIds(value);
            if (!ids) return "token ids as 1,2,3";
            prompt = *ids;
            return {};
          })
      ->excludes(text);
}

void AddSeed(CLI::App& app, const std::string& description,
             std::function<void(uint64_t)> store) {
  AddFlag(app, "--seed", "S", description,
          [store = std::move(store)](const std::string& text) -> std::string {
            const std::optional<uint64_t> seed = ParseUnsigned(text);
            if (!seed) return "a whole number, 0 to 2^64 - 1";
            store(*seed);
            return {};
          });
}

void AddThreads(CLI::App& app, int& threads) {
  AddInteger(app, "--threads",
             "CPU threads; 0: as many as the machine has (default 0)", 0, 1024,
             [&threads](int64_t value) { threads = static_cast<int>(value); });
}

void AddVerifyFiles(CLI::App& app, bool& verify_files) {
  app.add_flag(
      "--verify-files", verify_files,
      "Read every weight at load, refuse what is not finite and tell the "
      "digest of all; else only norms, routers and decays are looked at");
}

void AddPlanFlags(CLI::App& app, PlanOptions& options, int& threads) {
  app.add_option("--mesh", options.mesh,
                 "`single`, or axes as `ep=2`, `tp=2`, `pp=2,ep=2` (default "
                 "single)")
      ->type_name("SPEC");
  AddDeviceAndSizeFlags(app, options, threads);
}

void AddDeviceAndSizeFlags(CLI::App& app, PlanOptions& options, int& threads) {
  app.add_option("--devices", options.devices,
                 "`cpu`, `gpu`, or one entry a rank as `cpu:0,cpu:1` (default: "
                 "chosen, and the choice is printed)")
      ->type_name("LIST");
  AddFlag(app, "--experts", "HOW",
          "Routed experts under tp: split (a slice of each on every rank, the "
          "default) or owned",
          [&options](const std::string& text) -> std::string {
            if (text == "split") {
              options.tp_experts = TpExperts::kSplit;
            } else if (text == "owned") {
              options.tp_experts = TpExperts::kOwned;
            } else {
              return "split or owned";
            }
            return {};
          });
  // Values that are numbers but no plan can have are refused by the plan, with
  // the other things it refuses.
  constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  AddInteger(app, "--ctx", "Positions a sequence may hold (default 4096)", kMin,
             kMax, [&options](int64_t value) { options.context = value; });
  AddInteger(app, "--batch", "Sequences decoded at once (default 1)", kMin,
             kMax, [&options](int64_t value) { options.batch = value; });
  AddFlag(app, "--kv", "TYPE",
          "KV cache: f32 or bf16 (default f32 on the CPU, bf16 on a GPU)",
          [&options](const std::string& text) -> std::string {
            if (text == "f32") {
              options.kv = KvType::kF32;
            } else if (text == "bf16") {
              options.kv = KvType::kBF16;
            } else {
              return "f32 or bf16";
            }
            return {};
          });
  AddThreads(app, threads);
}

}  // namespace signet::cli
