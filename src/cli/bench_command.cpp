// signet bench: speeds beside what the device can do.

#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
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
#include "evidence/bench.h"
#include "evidence/bench_record.h"
#include "evidence/bench_report.h"

namespace signet::cli {
namespace {

constexpr const char* kExamples = R"(Examples:
  signet bench demo -P 64 -n 16 -b 1,2
  signet bench qwen3.6:35b-a3b -P 512,2048 -n 128 -b 1,8,64
  signet bench demo -P 64 -n 16 -b 1 --profile --json
  signet bench demo -P 64 -n 16 -b 1,2 --out bench.json

Each row is the median of five runs or more. What was moved and computed stands
beside the time, as a share of what this device was measured to do. A CPU's
times change from run to run: compare ratios of one run.)";

constexpr int kMostRuns = 1000;

// Numbers from 1 on, none twice; nothing for anything else.
std::optional<std::vector<int64_t>> ParseCounts(const std::string& text) {
  const std::optional<std::vector<int32_t>> ids = ParseIds(text);
  if (!ids) return std::nullopt;
  const std::set<int32_t> different(ids->begin(), ids->end());
  if (different.size() != ids->size() || *different.begin() < 1) {
    return std::nullopt;
  }
  return std::vector<int64_t>(ids->begin(), ids->end());
}

class BenchCommand : public Command {
 public:
  explicit BenchCommand(CLI::App& app) {
    app.footer(kExamples);
    AddModel(app, request_.model);
    AddCounts(app, "-P", "Lengths of the prompts read (default 512,2048)",
              request_.prompts);
    AddInteger(app, "-n", "Tokens decoded for each request (default 128)", 2,
               std::numeric_limits<int32_t>::max(),
               [this](int64_t value) { request_.tokens = value; });
    AddCounts(app, "-b", "Requests decoded together (default 1,8,64)",
              request_.batches);
    AddInteger(app, "--repeat",
               fmt::format("Runs of each measurement (default {})",
                           evidence::kFewestRuns),
               evidence::kFewestRuns, kMostRuns, [this](int64_t value) {
                 request_.repeat = static_cast<int>(value);
               });
    app.add_flag("--profile", request_.profile,
                 "Show where the time goes, for the first of -b and of -P");
    app.add_option("--out", out_,
                   "Write the JSON object as a record; a bench that is there "
                   "is replaced, nothing else")
        ->type_name("FILE")
        ->check([](const std::string& file) {
          return std::string(file.empty() ? "got \"\", want a file" : "");
        });
    AddDeviceAndSizeFlags(app, request_.options, request_.threads);
    AddVerifyFiles(app, request_.verify_files);
    context_ = app.get_option("--ctx");
    context_->description(
        "Positions a sequence may hold (default: as many as are measured)");
    app.get_option("--batch")->description(
        "Sequences there is room for (default: the largest of -b)");
    AddJson(app, json_);
  }

  int Run() override {
    if (json_) TellSignalsInJson();
    request_.paths = SearchPathsOfEnvironment();
    if (context_->count() > 0) request_.context = request_.options.context;
    request_.on_phase = [](std::string_view what) {
      fmt::print(stderr, "measuring {}\n", what);
    };
    // What a run that is stopped early has found.
    request_.on_figure = [](std::string_view what) {
      fmt::print(stderr, "  {}\n", what);
    };
    if (!out_.empty()) {
      const Result<void> place = evidence::CheckBenchPlace(out_);
      if (!place) return Report(place.error(), json_);
    }
    const Result<evidence::BenchReport> report = evidence::Bench(request_);
    if (!report) return Report(report.error(), json_);
    const nlohmann::ordered_json json = evidence::BenchJson(*report, BuildId());
    if (!out_.empty()) {
      const Result<void> written = evidence::WriteBench(json, out_);
      if (!written) return Report(written.error(), json_);
    }
    return PrintResult(json_ ? JsonLine(json)
                             : evidence::BenchText(*report, BuildId()));
  }

 private:
  static void AddCounts(CLI::App& app, const char* name,
                        const char* description, std::vector<int64_t>& counts) {
    AddFlag(app, name, "LIST", description,
            [&counts](const std::string& text) -> std::string {
              const auto parsed = ParseCounts(text);
              if (!parsed) return "different numbers from 1 on, as 1,8,64";
              counts = *parsed;
              return {};
            });
  }

  evidence::BenchRequest request_;
  CLI::Option* context_;
  std::string out_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeBenchCommand(CLI::App& app) {
  return std::make_unique<BenchCommand>(app);
}

}  // namespace signet::cli
