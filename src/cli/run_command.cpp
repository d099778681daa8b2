// signet run: load, generate, print the text as it comes.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cli/command.h"
#include "cli/environment.h"
#include "cli/exit_code.h"
#include "cli/flags.h"
#include "cli/json_output.h"
#include "cli/launcher.h"
#include "cli/progress_bar.h"
#include "cli/report.h"
#include "cli/signals.h"
#include "cli/sink.h"
#include "cli/standard_output.h"
#include "signet/engine.h"
#include "signet/plan.h"
#include "signet/session.h"
#include "signet/source.h"

namespace signet::cli {
namespace {

constexpr const char* kExamples = R"(Examples:
  signet run demo -p "Alice was"
  signet run demo -p "Alice was" -n 16 --temp 0
  signet run ./my-checkpoint --ids 17,4,2 --ignore-eos --json

The text goes to standard output as it comes; everything else to stderr.
Without a sampling flag the checkpoint's own sampling is used; each flag
replaces one part of it. --temp 0 always takes the likeliest token. Ctrl-C
keeps the text so far.)";

class RunCommand : public Command {
 public:
  explicit RunCommand(CLI::App& app) {
    app.footer(kExamples);
    AddModel(app, model_);
    AddPrompt(app, prompt_);
    AddInteger(app, "-n", "Tokens to generate at most (default 128)", 1,
               std::numeric_limits<int64_t>::max(),
               [this](int64_t value) { max_tokens_ = value; });
    app.add_flag("--ignore-eos", ignore_eos_, "Do not end at a stop token");
    app.add_flag("--raw", raw_, "No chat template, and no word about it");
    AddSampling(app);
    AddPlanFlags(app, options_, threads_);
    AddVerifyFiles(app, verify_files_);
    launcher_.AddFlags(app);
    AddJson(app, json_);
  }

  int Run() override {
    if (!prompt_) {
      return ReportUsage("run",
                         "a prompt is needed, -p TEXT or --ids LIST; there is "
                         "no chat yet");
    }
    const Result<void> joined = launcher_.Join();
    if (!joined) return Report(joined.error(), json_);
    if (json_ && launcher_.speaks()) TellSignalsInJson();
    return launcher_.Leave(RunJoined());
  }

 private:
  int RunJoined() {
    options_.world = launcher_.world();
    const Result<Source> source =
        Source::Open(model_, SearchPathsOfEnvironment());
    if (!source) return launcher_.ReportOwn(source.error(), json_);
    if (const auto refusal = RefusePrompt(*source)) {
      return launcher_.ReportOwn(*refusal, json_);
    }
    const Result<Plan> plan = Plan::Make(*source, options_);
    if (!plan) return launcher_.Report(plan.error(), json_);
    if (launcher_.speaks()) TellChoices(*source, *plan);
    EngineOptions engine_options;
    engine_options.threads = threads_;
    engine_options.verify_files = verify_files_;
    Result<Engine> engine = Engine::Make(engine_options);
    if (!engine) return launcher_.ReportOwn(engine.error(), json_);
    Result<Model> model = Load(*engine, *plan);
    if (!model) return launcher_.Report(model.error(), json_);
    Result<Session> session = Session::Make(*model, 1);
    if (!session) return launcher_.Report(session.error(), json_);
    return Generate(*plan, *model, *session);
  }

  void AddSampling(CLI::App& app) {
    AddFlag(app, "--temp", "T", "Temperature; 0: the likeliest token",
            [this](const std::string& value) -> std::string {
              temperature_ = ParseNumber(value);
              if (temperature_ && *temperature_ >= 0) return {};
              return "a finite number, at least 0";
            });
    AddFlag(app, "--top-p", "P",
            "The likeliest tokens of together this probability; 1: all",
            [this](const std::string& value) -> std::string {
              top_p_ = ParseNumber(value);
              if (top_p_ && *top_p_ > 0 && *top_p_ <= 1) return {};
              return "a number above 0, at most 1";
            });
    AddInteger(app, "--top-k", "The K likeliest tokens; 0: all", 0,
               std::numeric_limits<int32_t>::max(),
               [this](int64_t value) { top_k_ = static_cast<int32_t>(value); });
    AddSeed(app, "Seed of the sampling (default 0)",
            [this](uint64_t value) { seed_ = value; });
  }

  /// What would otherwise show only after the weights are loaded.
  std::optional<Error> RefusePrompt(const Source& source) const {
    if (source.has_tokenizer() ||
        !std::holds_alternative<std::string>(*prompt_))
      return std::nullopt;
    return Rejections(Rejection{RejectionCode::kRequestInvalid, source.folder(),
                                "-p", "--ids",
                                "the checkpoint has no tokenizer"});
  }

  void TellChoices(const Source& source, const Plan& plan) const {
    if (options_.devices.empty()) {
      fmt::print(stderr, "devices: {} (chosen)\n",
                 fmt::join(plan.devices(), ","));
    }
    if (source.has_chat_template() && !raw_ &&
        std::holds_alternative<std::string>(*prompt_)) {
      fmt::print(stderr,
                 "the checkpoint has a chat template; the prompt is taken as "
                 "raw text all the same (--raw leaves out this line)\n");
    }
  }

  Result<Model> Load(Engine& engine, const Plan& plan) const {
    if (!launcher_.speaks()) return engine.Load(plan, {});
    ProgressBar bar;
    return engine.Load(
        plan, [&bar](const LoadProgress& progress) { bar.Update(progress); });
  }

  Request MakeRequest(const Model& model) const {
    Request request;
    request.prompt = *prompt_;
    request.max_tokens = max_tokens_;
    request.ignore_eos = ignore_eos_;
    request.sampling = model.default_sampling();
    if (temperature_) request.sampling.temperature = *temperature_;
    if (top_p_) request.sampling.top_p = *top_p_;
    if (top_k_) request.sampling.top_k = *top_k_;
    if (seed_) request.sampling.seed = *seed_;
    return request;
  }

  int Generate(const Plan& plan, const Model& model, Session& session) {
    const Request request = MakeRequest(model);
    const Show shown = model.has_tokenizer() ? Show::kText : Show::kIds;
    const bool shows = launcher_.speaks() && !json_;
    RunSink sink(shows ? shown : Show::kNothing, session);
    {
      // One rank of several cannot stop alone: there SIGINT ends the process,
      // and with it the run.
      std::optional<InterruptScope> interrupts;
      if (!launcher_.world()) interrupts.emplace(session);
      const Result<void> result =
          session.Generate(std::span(&request, 1), sink);
      if (!result) return launcher_.Report(result.error(), json_);
    }
    const EndEvent& end = sink.generated().end;
    if (sink.output_error() != 0) {
      return launcher_.End(ReportClosedOutput(sink.output_error()));
    }
    if (end.error) return launcher_.End(ReportStep(*end.error));
    if (!launcher_.speaks()) return kExitDone;
    if (json_) {
      const int code = PrintResult(
          RunJson(sink.generated(), model.contract_id(), plan.devices()));
      if (code != kExitDone) return code;
    } else {
      TellNumbers(end);
    }
    return IsInterrupted() ? kExitInterrupted : kExitDone;
  }

  /// An error in the midst of the run, by whichever rank met it.
  int ReportStep(const Error& error) const {
    if (!launcher_.world()) return Report(error, json_);
    fmt::print(stderr, "rank {}: {}\n", launcher_.world()->rank(),
               Describe(error));
    if (json_ && launcher_.speaks()) return Report(error, json_);
    return ExitCode(error);
  }

  void TellNumbers(const EndEvent& end) const {
    std::string line =
        fmt::format("{} token{}", end.tokens, end.tokens == 1 ? "" : "s");
    if (end.decode_tokens_per_second > 0) {
      line += fmt::format(", {:.1f} tok/s", end.decode_tokens_per_second);
    }
    if (end.first_token_ms > 0) {
      line += fmt::format(", first token after {:.1f} ms", end.first_token_ms);
    }
    if (IsInterrupted()) line += ", interrupted";
    fmt::print(stderr, "{}\n", line);
    if (end.context_full) {
      fmt::print(stderr,
                 "the context of {} positions is full; --ctx sets its size\n",
                 options_.context);
    }
  }

  std::string model_;
  std::optional<Prompt> prompt_;
  int64_t max_tokens_ = 128;
  bool ignore_eos_ = false;
  bool raw_ = false;
  std::optional<float> temperature_;
  std::optional<float> top_p_;
  std::optional<int32_t> top_k_;
  std::optional<uint64_t> seed_;
  PlanOptions options_;
  Launcher launcher_;
  int threads_ = 0;
  bool verify_files_ = false;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeRunCommand(CLI::App& app) {
  return std::make_unique<RunCommand>(app);
}

}  // namespace signet::cli
