#pragma once
// One command of the binary. Its maker declares the flags on `app` and returns
// the object that holds their values; Run is called once, after parsing.

#include <CLI/CLI.hpp>
#include <memory>

namespace signet::cli {

class Command {
 public:
  virtual ~Command() = default;
  /// The exit code.
  virtual int Run() = 0;
};

std::unique_ptr<Command> MakeRunCommand(CLI::App& app);
std::unique_ptr<Command> MakePlanCommand(CLI::App& app);
std::unique_ptr<Command> MakeInspectCommand(CLI::App& app);
std::unique_ptr<Command> MakeProgramCommand(CLI::App& app);
std::unique_ptr<Command> MakeVerifyCommand(CLI::App& app);
std::unique_ptr<Command> MakeEvidenceCommand(CLI::App& app);
std::unique_ptr<Command> MakeBenchCommand(CLI::App& app);
std::unique_ptr<Command> MakeModelsCommand(CLI::App& app);
std::unique_ptr<Command> MakeDevicesCommand(CLI::App& app);
std::unique_ptr<Command> MakeSynthCommand(CLI::App& app);

}  // namespace signet::cli
