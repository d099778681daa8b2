// signet run: load, generate, print the text as it comes.

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "cli/chat_loop.h"
#include "cli/command.h"
#include "cli/environment.h"
#include "cli/exit_code.h"
#include "cli/flags.h"
#include "cli/json_output.h"
#include "cli/launcher.h"
#include "cli/progress_bar.h"
#include "cli/report.h"
#include "cli/request_flags.h"
#include "cli/run_numbers.h"
#include "cli/signals.h"
#include "cli/sink.h"
#include "cli/standard_output.h"
#include "signet/engine.h"
#include "signet/plan.h"
#include "signet/prompts.h"
#include "signet/session.h"
#include "signet/source.h"

namespace signet::cli {
namespace {

constexpr const char* kExamples = R"(Examples:
  signet run demo -p "Alice was"
  signet run demo -p "Alice was" -n 16 --temp 0 --stop "."
  signet run demo --prompts ./prompts.txt -n 16
  signet run ./my-checkpoint --ids 17,4,2 --ignore-eos --json
  signet run qwen3.6:35b-a3b --system "Answer in one sentence."

The text goes to standard output as it comes; everything else to stderr.
A text is the message of a user where the checkpoint has a chat template; --raw
takes it as it is. Without a prompt, on a terminal, it is a chat.
Without a sampling flag the checkpoint's own sampling is used; each flag
replaces one part of it. --temp 0 always takes the likeliest token. Ctrl-C
keeps the text so far.)";

constexpr int64_t kDefaultTokens = 128;
// Decoded at once without --batch: enough to share the reading of weights, and
// few enough that their contexts fit where one does.
constexpr int64_t kDefaultBatch = 8;

class RunCommand : public Command {
 public:
  explicit RunCommand(CLI::App& app) {
    app.footer(kExamples);
    AddModel(app, model_);
    AddPrompt(app, prompt_);
    AddFlag(app, "--prompts", "FILE", "A file of prompts, one a line",
            [this](const std::string& value) -> std::string {
              if (value.empty()) return "a file";
              prompts_file_ = value;
              return {};
            })
        ->excludes("-p")
        ->excludes("--ids");
    AddFlag(app, "--system", "TEXT", "The chat template's system message",
            [this](const std::string& value) -> std::string {
              system_ = value;
              return {};
            });
    app.add_flag("--no-think", no_think_,
                 "The answer at once, without a thought before it");
    app.add_flag("--raw", raw_, "No chat template: the text as it is");
    request_flags_.Add(app);
    AddPlanFlags(app, options_, threads_);
    AddVerifyFiles(app, verify_files_);
    batch_ = app.get_option("--batch");
    launcher_.AddFlags(app);
    AddJson(app, json_);
  }

  int Run() override {
    const std::string wrong = WhatIsWrong();
    if (!wrong.empty()) return ReportUsage("run", wrong);
    const Result<void> joined = launcher_.Join();
    if (!joined) return Report(joined.error(), json_);
    if (json_ && launcher_.speaks()) TellSignalsInJson();
    return launcher_.Leave(RunJoined());
  }

 private:
  bool is_chat() const { return !prompt_ && !prompts_file_; }
  bool is_ids() const {
    return prompt_ && std::holds_alternative<std::vector<int32_t>>(*prompt_);
  }

  /// Of the flags together.
  std::string WhatIsWrong() const {
    constexpr const char* kPrompts = "-p TEXT or --ids LIST or --prompts FILE";
    if (is_chat() && isatty(STDIN_FILENO) == 0) {
      return fmt::format(
          "a prompt is needed, {}; a chat needs a terminal as standard input",
          kPrompts);
    }
    if (is_chat() && json_) {
      return fmt::format("a chat prints no object; --json needs {}", kPrompts);
    }
    if (is_chat() && raw_) {
      return fmt::format("a chat needs the chat template; --raw needs {}",
                         kPrompts);
    }
    if (const char* flag = TemplateFlag(); flag && (raw_ || is_ids())) {
      return fmt::format("{} needs the chat template, which {} leaves out",
                         flag, raw_ ? "--raw" : "--ids");
    }
    return {};
  }

  /// A flag that means nothing without a chat template, or null.
  const char* TemplateFlag() const {
    return system_ ? "--system" : no_think_ ? "--no-think" : nullptr;
  }

  int RunJoined() {
    options_.world = launcher_.world();
    const Result<Source> source =
        Source::Open(model_, SearchPathsOfEnvironment());
    if (!source) return launcher_.ReportOwn(source.error(), json_);
    if (prompts_file_) {
      Result<std::vector<std::string>> lines = ReadPrompts(*prompts_file_);
      if (!lines) return launcher_.ReportOwn(lines.error(), json_);
      texts_ = *std::move(lines);
    } else if (prompt_ && !is_ids()) {
      texts_ = {std::get<std::string>(*prompt_)};
    }
    has_template_ =
        !is_ids() && !raw_ && (is_chat() || source->has_chat_template());
    if (const auto refusal = RefusePrompt(*source)) {
      const int code = launcher_.ReportOwn(*refusal, json_);
      if (launcher_.speaks() && !json_) TellWayOut(*source);
      return code;
    }
    const auto num_requests = static_cast<int64_t>(texts_.size());
    if (prompts_file_ && batch_->count() == 0) {
      options_.batch = std::min(num_requests, kDefaultBatch);
    }
    const Result<Plan> plan = Plan::Make(*source, options_);
    if (!plan) return launcher_.Report(plan.error(), json_);
    if (launcher_.speaks() && options_.devices.empty()) {
      fmt::print(stderr, "devices: {} (chosen)\n",
                 fmt::join(plan->devices(), ","));
    }
    EngineOptions engine_options;
    engine_options.threads = threads_;
    engine_options.verify_files = verify_files_;
    Result<Engine> engine = Engine::Make(engine_options);
    if (!engine) return launcher_.ReportOwn(engine.error(), json_);
    Result<Model> model = Load(*engine, *plan);
    if (!model) return launcher_.Report(model.error(), json_);
    if (verify_files_ && launcher_.speaks() && model->content_digest()) {
      fmt::print(stderr, "weights: all finite, content {}\n",
                 *model->content_digest());
    }
    const int64_t slots =
        prompts_file_ ? std::min(num_requests, options_.batch) : 1;
    Result<Session> session = Session::Make(*model, slots);
    if (!session) return launcher_.Report(session.error(), json_);
    return is_chat() ? RunChat(*model, *session)
                     : Generate(*plan, *model, *session);
  }

  /// What would otherwise show only after the weights are loaded.
  std::optional<Error> RefusePrompt(const Source& source) const {
    const auto refuse = [&](const char* message, const char* got,
                            const char* want) {
      return Rejections(Rejection{RejectionCode::kRequestInvalid,
                                  source.folder(), got, want, message});
    };
    if (is_chat() && launcher_.world()) {
      return refuse("a chat runs in one process", "--launcher mpi", "-p");
    }
    if (!source.has_tokenizer() && !is_ids()) {
      return refuse("the checkpoint has no tokenizer",
                    prompts_file_ ? "--prompts" : "-p", "--ids");
    }
    if (!source.has_tokenizer() && request_flags_.has_stops()) {
      return refuse("the checkpoint has no tokenizer", "--stop",
                    "no stop text");
    }
    if (const char* flag = TemplateFlag();
        flag && !source.has_chat_template()) {
      return refuse("the checkpoint has no chat template", flag,
                    "the text in -p");
    }
    if (!has_template_) return std::nullopt;
    const Result<void> chat = source.CheckChat();
    if (chat) return std::nullopt;
    return chat.error();
  }

  /// Where a chat template was in the way.
  void TellWayOut(const Source& source) const {
    if (!has_template_ || !source.has_tokenizer() || launcher_.world()) return;
    if (is_chat()) {
      fmt::print(stderr, "-p TEXT continues a text without a chat template\n");
    } else if (source.has_chat_template()) {
      fmt::print(stderr, "--raw takes the prompt as it is\n");
    }
  }

  Result<Model> Load(Engine& engine, const Plan& plan) const {
    if (!launcher_.speaks()) return engine.Load(plan, {});
    ProgressBar bar;
    return engine.Load(
        plan, [&bar](const LoadProgress& progress) { bar.Update(progress); });
  }

  int RunChat(const Model& model, Session& session) const {
    ChatLoop chat(session, request_flags_.Make(model, options_.context),
                  OpenChat(), MakeForm(Show::kText), options_.context);
    return chat.Run();
  }

  /// A conversation before its first message.
  Chat OpenChat() const {
    Chat chat;
    chat.thinking = !no_think_;
    if (system_) chat.messages.push_back({ChatRole::kSystem, *system_, {}});
    return chat;
  }

  Form MakeForm(Show show) const {
    Form form{.show = show,
              .dims = isatty(STDOUT_FILENO) != 0,
              .thinks = has_template_ && !no_think_,
              .tells_progress = launcher_.speaks(),
              .titles = {}};
    if (prompts_file_) form.titles = texts_;
    return form;
  }

  std::vector<Request> MakeRequests(const Model& model) const {
    const Request blank = request_flags_.Make(model, kDefaultTokens);
    std::vector<Request> requests(std::max<size_t>(texts_.size(), 1), blank);
    if (is_ids()) {
      requests[0].prompt = std::get<std::vector<int32_t>>(*prompt_);
      requests[0].name = "--ids";
    }
    for (size_t i = 0; i < texts_.size(); ++i) {
      requests[i].sequence = static_cast<uint32_t>(i);
      requests[i].name =
          prompts_file_ ? fmt::format("{}:{}", *prompts_file_, i + 1) : "-p";
      if (!has_template_) {
        requests[i].prompt = texts_[i];
        continue;
      }
      Chat chat = OpenChat();
      chat.messages.push_back({ChatRole::kUser, texts_[i], {}});
      requests[i].prompt = std::move(chat);
    }
    return requests;
  }

  int Generate(const Plan& plan, const Model& model, Session& session) {
    const std::vector<Request> requests = MakeRequests(model);
    const Show shown = model.has_tokenizer() ? Show::kText : Show::kIds;
    const bool shows = launcher_.speaks() && !json_;
    RunSink sink(MakeForm(shows ? shown : Show::kNothing), requests.size(),
                 session);
    const auto start = std::chrono::steady_clock::now();
    {
      // One rank of several cannot stop alone: there SIGINT ends the process,
      // and with it the run.
      std::optional<InterruptScope> interrupts;
      if (!launcher_.world()) interrupts.emplace(session);
      const Result<void> result = session.Generate(requests, sink);
      if (!result) return launcher_.Report(result.error(), json_);
    }
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
            .count();
    if (sink.output_error() != 0) {
      return launcher_.End(ReportClosedOutput(sink.output_error()));
    }
    for (const Generated& made : sink.generated()) {
      if (made.end.error) return launcher_.End(ReportStep(*made.end.error));
    }
    if (!launcher_.speaks()) return kExitDone;
    if (json_) {
      const int code = PrintResult(RunJson(
          sink.generated(), prompts_file_.has_value(), model, plan.devices()));
      if (code != kExitDone) return code;
    } else {
      TellNumbers(sink.generated(), seconds);
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

  void TellNumbers(const std::vector<Generated>& all, double seconds) const {
    fmt::print(
        stderr, "{}\n",
        prompts_file_ ? NumbersOf(all, seconds) : NumbersOf(all.front().end));
    const auto num_full = std::ranges::count_if(
        all, [](const Generated& made) { return made.end.context_full; });
    if (num_full == 0) return;
    fmt::print(
        stderr, "the context of {} positions is full{}; --ctx sets its size\n",
        options_.context,
        prompts_file_ ? fmt::format(" in {} of {}", num_full, all.size()) : "");
  }

  std::string model_;
  std::optional<Prompt> prompt_;
  std::optional<std::string> prompts_file_;
  std::optional<std::string> system_;
  bool no_think_ = false;
  bool raw_ = false;
  RequestFlags request_flags_;
  PlanOptions options_;
  const CLI::Option* batch_ = nullptr;
  Launcher launcher_;
  int threads_ = 0;
  bool verify_files_ = false;
  bool json_ = false;

  std::vector<std::string> texts_;  // none: ids, or a chat
  bool has_template_ = false;       // the texts go through the chat template
};

}  // namespace

std::unique_ptr<Command> MakeRunCommand(CLI::App& app) {
  return std::make_unique<RunCommand>(app);
}

}  // namespace signet::cli
