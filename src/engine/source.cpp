#include "signet/source.h"

#include <utility>

#include "base/result.h"
#include "engine/boundary.h"
#include "engine/source_impl.h"
#include "engine/threads.h"
#include "model/inspect.h"
#include "model/registry.h"
#include "model/synth.h"
#include "text/chat_template.h"

namespace signet {
namespace {

model::SearchPaths RegistryPaths(const SearchPaths& paths) {
  return {.models = paths.models, .hub = paths.hub, .demo = paths.demo};
}

constexpr uint64_t kMaxTemplateBytes = 1 << 20;

// As transformers looks for it: the file, else the key of the config.
Result<void> CheckChatTemplate(const model::Checkpoint& checkpoint) {
  if (!checkpoint.has_chat_template()) {
    return Reject(RejectionCode::kRequestInvalid, checkpoint.folder(),
                  "the checkpoint has no chat template");
  }
  const std::filesystem::path path =
      std::filesystem::path(checkpoint.folder()) / "chat_template.jinja";
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored)) {
    SIGNET_ASSIGN_OR_RETURN(const model::OpenedFile file,
                            model::OpenedFile::Open(path));
    SIGNET_ASSIGN_OR_RETURN(const std::string source,
                            file.ReadAll(kMaxTemplateBytes));
    return text::RecogniseChatTemplate(source, path.string());
  }
  const std::string source =
      text::TemplateOfConfig(checkpoint.tokenizer_config_json()).value_or("");
  return text::RecogniseChatTemplate(
      source, checkpoint.folder() + "/tokenizer_config.json: chat_template");
}

}  // namespace

Result<std::vector<ModelListing>> ListModels(const SearchPaths& paths) {
  return AtBoundary("models", [&]() -> Result<std::vector<ModelListing>> {
    std::vector<ModelListing> listings;
    for (const model::FoundModel& found :
         model::ListModels(RegistryPaths(paths))) {
      listings.push_back({.name = std::string(found.name),
                          .hub_name = std::string(found.hub_name),
                          .folder = found.folder});
    }
    return listings;
  });
}

Source::Source(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

Result<Source> Source::OpenHere(std::string_view path_or_name,
                                const SearchPaths& paths) {
  SIGNET_ASSIGN_OR_RETURN(const std::filesystem::path folder,
                          model::Resolve(path_or_name, RegistryPaths(paths)));
  SIGNET_ASSIGN_OR_RETURN(model::Checkpoint opened,
                          model::Checkpoint::Open(folder));
  auto impl = std::make_shared<Impl>();
  impl->checkpoint =
      std::make_shared<const model::Checkpoint>(std::move(opened));
  SIGNET_ASSIGN_OR_RETURN(impl->manifest,
                          model::BuildManifest(impl->checkpoint));
  impl->chat = CheckChatTemplate(*impl->checkpoint);
  const std::string& generation = impl->checkpoint->generation_config_json();
  if (!generation.empty()) {
    SIGNET_ASSIGN_OR_RETURN(
        impl->generation,
        model::ParseGenerationConfig(
            generation, (folder / "generation_config.json").string()));
  }
  return Source(std::move(impl));
}

Result<Source> Source::Open(std::string_view path_or_name,
                            const SearchPaths& paths) {
  return AtBoundary("open", [&] { return OpenHere(path_or_name, paths); });
}

const std::string& Source::folder() const {
  return impl_->checkpoint->folder();
}

bool Source::has_tokenizer() const {
  return impl_->checkpoint->tokenizer_file().has_value();
}

bool Source::has_chat_template() const {
  return impl_->checkpoint->has_chat_template();
}

Result<void> Source::CheckChat() const {
  return AtBoundary("chat", [&]() -> Result<void> {
    SIGNET_RETURN_IF_ERROR(impl_->chat);
    return {};
  });
}

Result<std::string> Source::InspectText() const {
  return AtBoundary("inspect", [&]() -> Result<std::string> {
    return model::InspectText(*impl_->manifest);
  });
}

Result<std::string> Source::InspectJson() const {
  return AtBoundary("inspect", [&]() -> Result<std::string> {
    return model::InspectJson(*impl_->manifest);
  });
}

Result<std::string> Synthesize(const SynthRequest& request) {
  return AtBoundary("synth", [&]() -> Result<std::string> {
    SIGNET_ASSIGN_OR_RETURN(
        model::SynthReport report,
        model::Synthesize({.config = request.config,
                           .folder = request.folder,
                           .layers = request.layers,
                           .vocab = request.vocab,
                           .seed = request.seed,
                           .threads = WorkingThreads(request.threads),
                           .stop = request.stop,
                           .sparse = request.sparse}));
    return std::move(report.text);
  });
}

}  // namespace signet
