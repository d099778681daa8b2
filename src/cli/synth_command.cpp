// signet synth: a random-weight checkpoint of a config.

#include <atomic>
#include <limits>
#include <string>

#include "cli/command.h"
#include "cli/exit_code.h"
#include "cli/flags.h"
#include "cli/json_output.h"
#include "cli/report.h"
#include "cli/signals.h"
#include "cli/standard_output.h"
#include "signet/source.h"

namespace signet::cli {
namespace {

constexpr const char* kExamples = R"(Examples:
  signet synth ./my-checkpoint /tmp/small --layers 4 --vocab 512
  signet synth qwen3.6:35b-a3b /tmp/big --seed 7
  signet synth qwen3.6:35b-a3b /tmp/empty --sparse   # then: signet plan

CONFIG is a config.json, a folder that holds one, or a registry name. DIR is
made; if it exists it must be empty. The same config, flags and seed write the
same bytes with any number of threads.)";

class SynthCommand : public Command {
 public:
  explicit SynthCommand(CLI::App& app) {
    app.footer(kExamples);
    app.add_option("CONFIG", request_.config, "The config")
        ->type_name("")
        ->required();
    app.add_option("DIR", folder_, "The folder to write")
        ->type_name("")
        ->required();
    // What no config can have is refused where configs are read.
    constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
    constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
    AddInteger(app, "--layers", "Layers (default: the config's)", kMin, kMax,
               [this](int64_t value) { request_.layers = value; });
    AddInteger(app, "--vocab", "Vocabulary size (default: the config's)", kMin,
               kMax, [this](int64_t value) { request_.vocab = value; });
    AddSeed(app, "Seed of the weights (default 0)",
            [this](uint64_t value) { request_.seed = value; });
    app.add_flag("--sparse", request_.sparse,
                 "Store no weight: files of full length that take no room, to "
                 "plan with");
    AddThreads(app, request_.threads);
    AddJson(app, json_);
  }

  int Run() override {
    request_.folder = folder_;
    std::atomic<bool> stop = false;
    request_.stop = &stop;
    const InterruptScope interrupts(stop);
    const Result<std::string> summary = Synthesize(request_);
    if (!summary) {
      const int exit_code = Report(summary.error(), json_);
      return IsInterrupted() ? kExitInterrupted : exit_code;
    }
    return PrintResult(json_ ? SynthJson(folder_, *summary)
                             : WithFinalNewline(*summary));
  }

 private:
  SynthRequest request_;
  std::string folder_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeSynthCommand(CLI::App& app) {
  return std::make_unique<SynthCommand>(app);
}

}  // namespace signet::cli
