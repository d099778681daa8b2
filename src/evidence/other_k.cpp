#include "evidence/other_k.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>

namespace signet::evidence {
namespace {

namespace fs = std::filesystem;

// A folder that goes with this.
class Scratch {
 public:
  static Result<Scratch> Make() {
    std::error_code error;
    fs::path base = fs::temp_directory_path(error);
    if (error) base = "/tmp";
    std::string name = (base / "signet-verify-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) {
      return Fail(FailureKind::kIo, name, std::strerror(errno));
    }
    return Scratch(name);
  }
  Scratch(Scratch&& other) noexcept : path_(std::move(other.path_)) {
    other.path_.clear();
  }
  ~Scratch() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  const fs::path& path() const { return path_; }

 private:
  explicit Scratch(fs::path path) : path_(std::move(path)) {}
  fs::path path_;
};

constexpr const char* kKey = "num_experts_per_tok";

}  // namespace

Result<std::shared_ptr<const model::Manifest>> OtherK(
    const model::Manifest& manifest) {
  const model::ModelConfig& config = manifest.config();
  // Proven JSON: the manifest was built from it.
  nlohmann::json json =
      nlohmann::json::parse(manifest.checkpoint().config_json());
  nlohmann::json& text =
      json.contains("text_config") ? json["text_config"] : json;
  if (config.num_experts < 2 || !text.contains(kKey)) {
    return std::shared_ptr<const model::Manifest>();
  }
  text[kKey] =
      config.top_k < config.num_experts ? config.top_k + 1 : config.top_k - 1;

  SIGNET_ASSIGN_OR_RETURN(const Scratch scratch, Scratch::Make());
  std::error_code error;
  const fs::path folder = fs::absolute(manifest.checkpoint().folder(), error);
  for (const fs::directory_entry& entry :
       fs::directory_iterator(folder, error)) {
    const fs::path name = entry.path().filename();
    if (name == "config.json") continue;
    fs::create_symlink(entry.path(), scratch.path() / name, error);
  }
  std::ofstream(scratch.path() / "config.json") << json.dump();
  SIGNET_ASSIGN_OR_RETURN(model::Checkpoint opened,
                          model::Checkpoint::Open(scratch.path()));
  return model::BuildManifest(
      std::make_shared<const model::Checkpoint>(std::move(opened)));
}

}  // namespace signet::evidence
