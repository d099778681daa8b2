#include "cli/application.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "cli/build_id.h"
#include "cli/command.h"
#include "cli/exit_code.h"
#include "cli/report.h"
#include "cli/signals.h"
#include "cli/standard_output.h"
#include "signet/version.h"

namespace signet::cli {
namespace {

struct CommandEntry {
  const char* name;
  const char* description;
  std::unique_ptr<Command> (*make)(CLI::App& app);
};

constexpr std::array kCommands = {
    CommandEntry{"run", "Generate text", MakeRunCommand},
    CommandEntry{"plan", "Show what would be placed where", MakePlanCommand},
    CommandEntry{"inspect", "Show what is in a checkpoint", MakeInspectCommand},
    CommandEntry{"program", "Show a sealed program", MakeProgramCommand},
    CommandEntry{"verify", "Compare meshes position by position",
                 MakeVerifyCommand},
    CommandEntry{"evidence", "See which receipts still hold",
                 MakeEvidenceCommand},
    CommandEntry{"bench", "Measure how fast a model runs", MakeBenchCommand},
    CommandEntry{"models", "List the models known by name", MakeModelsCommand},
    CommandEntry{"devices", "List what a plan can be placed on",
                 MakeDevicesCommand},
    CommandEntry{"synth", "Write a random-weight checkpoint", MakeSynthCommand},
};

constexpr const char* kFooter = R"(Examples:
  signet run demo -p "Alice was"
  signet plan demo
  signet models

Exit status: 0 done, 1 failed after admission, 2 usage, 3 refused,
4 verify found a difference, 130 interrupted.)";

struct Declared {
  CLI::App* app;
  std::unique_ptr<Command> command;
};

/// A file opened later must not become standard output, so closed standard
/// files are filled: stdin with nothing, the others with what cannot be
/// written.
void FillStandardFiles() {
  for (const int file : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(file, F_GETFD) < 0 && errno == EBADF) {
      // The lowest free number is `file`.
      if (open("/dev/null", O_RDONLY) < 0) return;
    }
  }
}

bool IsFlag(const std::string& argument) {
  return argument.size() > 1 && argument[0] == '-';
}

/// `--flag`, of `--flag=value` too.
std::string FlagName(const std::string& argument) {
  return argument.substr(0, argument.find('='));
}

/// What the first argument that nothing took should have been; nothing if all
/// were taken. `parsed` is the command, if one was found.
std::string DescribeExtra(const CLI::App& app, const CLI::App* parsed) {
  const std::vector<std::string> before = app.remaining(false);
  if (!before.empty()) {
    if (!IsFlag(before[0])) {
      return fmt::format("unknown command {}", before[0]);
    }
    return fmt::format("unknown flag {} before the command",
                       FlagName(before[0]));
  }
  if (parsed == nullptr) return {};
  const std::vector<std::string> extras = parsed->remaining(true);
  for (const std::string& extra : extras) {
    if (IsFlag(extra)) return fmt::format("unknown flag {}", FlagName(extra));
  }
  if (extras.empty()) return {};
  return fmt::format("unexpected argument {}", extras[0]);
}

int Parse(CLI::App& app, const std::vector<std::string>& arguments) {
  std::string error;
  try {
    // CLI11 takes them in reverse order.
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::CallForHelp&) {
    // The help of an unknown command is not that of the program.
    if (app.remaining(false).empty()) return PrintResult(app.help());
  } catch (const CLI::CallForVersion&) {
    return PrintResult(
        fmt::format("signet {} (build {})\n", Version(), BuildId()));
  } catch (const CLI::ParseError& parse_error) {
    error = parse_error.what();
  }
  const std::vector<CLI::App*> commands = app.get_subcommands();
  const CLI::App* const parsed = commands.empty() ? nullptr : commands[0];
  // CLI11 reports what is missing before what is unknown, which misleads after
  // a misspelt flag: then the value it would have had looks like an argument.
  const std::string extra = DescribeExtra(app, parsed);
  if (!extra.empty()) error = extra;
  if (error.empty() && parsed == nullptr) error = "a command is needed";
  if (error.empty()) return kExitDone;
  return ReportUsage(parsed == nullptr ? "" : parsed->get_name(), error);
}

int RunToEnd(Command& command) {
  try {
    return command.Run();
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "out of memory\n");
    return kExitFailed;
  }
}

}  // namespace

int RunApplication(int argc, const char* const* argv) {
  FillStandardFiles();
  InstallSignalHandlers();

  CLI::App app(
      "Runs Mixture-of-Experts language models, and refuses to run "
      "what it cannot prove well-formed.",
      "signet");
  app.footer(kFooter);
  app.set_version_flag("--version", std::string(Version()),
                       "Print the version and the build, and exit");
  app.require_subcommand(0, 1);
  app.allow_extras();
  std::vector<Declared> declared;
  for (const CommandEntry& entry : kCommands) {
    CLI::App* const command = app.add_subcommand(entry.name, entry.description);
    command->allow_extras();
    declared.push_back({command, entry.make(*command)});
  }
  bool is_asked = false;
  app.callback([&is_asked] { is_asked = true; });

  const int code = Parse(app, {argv + 1, argv + argc});
  if (code != kExitDone || !is_asked) return code;
  for (const Declared& candidate : declared) {
    if (candidate.app->parsed()) return RunToEnd(*candidate.command);
  }
  return kExitDone;
}

}  // namespace signet::cli
