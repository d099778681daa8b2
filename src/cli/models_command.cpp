// signet models: the registry, and what of it is on this machine.

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/environment.h"
#include "cli/flags.h"
#include "cli/json_output.h"
#include "cli/report.h"
#include "cli/standard_output.h"
#include "signet/source.h"

namespace signet::cli {
namespace {

constexpr const char* kExamples = R"(Examples:
  signet models
  SIGNET_MODELS=/data/models signet models --json

A name is looked up in $SIGNET_MODELS, then in the Hugging Face hub cache
($HF_HUB_CACHE, else $HF_HOME/hub, else ~/.cache/huggingface/hub); `demo` is
part of this repository.)";

std::string Table(const std::vector<ModelListing>& models) {
  size_t name_width = 4;
  size_t hub_width = 8;
  for (const ModelListing& model : models) {
    name_width = std::max(name_width, model.name.size());
    hub_width = std::max(hub_width, model.hub_name.size());
  }
  const auto line = [&](const std::string& name, const std::string& hub,
                        const std::string& folder) {
    return fmt::format("{:<{}}  {:<{}}  {}\n", name, name_width, hub, hub_width,
                       folder);
  };
  std::string text = line("NAME", "HUB NAME", "FOLDER");
  for (const ModelListing& model : models) {
    text += line(model.name, model.hub_name.empty() ? "-" : model.hub_name,
                 model.folder ? model.folder->string() : "not found");
  }
  return text;
}

std::string Place(const std::string& name,
                  const std::optional<std::filesystem::path>& path) {
  std::string state;
  if (path && !std::filesystem::is_directory(*path))
    state = " (no such folder)";
  return fmt::format("  {:<16}{}{}\n", name, path ? path->string() : "not set",
                     state);
}

class ModelsCommand : public Command {
 public:
  explicit ModelsCommand(CLI::App& app) {
    app.footer(kExamples);
    AddJson(app, json_);
  }

  int Run() override {
    const SearchPaths paths = SearchPathsOfEnvironment();
    const Result<std::vector<ModelListing>> models = ListModels(paths);
    if (!models) return Report(models.error(), json_);
    if (json_) return PrintResult(ModelsJson(*models, paths));
    return PrintResult(Table(*models) + "\nLooked in:\n" +
                       Place("$SIGNET_MODELS", paths.models) +
                       Place("hub cache", paths.hub) +
                       Place("demo", paths.demo));
  }

 private:
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeModelsCommand(CLI::App& app) {
  return std::make_unique<ModelsCommand>(app);
}

}  // namespace signet::cli
