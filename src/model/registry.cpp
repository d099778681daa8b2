#include "model/registry.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <fstream>
#include <iterator>
#include <utility>

#include "model/registry_configs.h"

namespace signet::model {
namespace {

namespace fs = std::filesystem;

constexpr std::array<RegistryEntry, 3> kRegistry = {{
    {"demo", "", kDemoConfig},
    {"qwen3.6:35b-a3b", "Qwen/Qwen3.6-35B-A3B", kQwen36MoeConfig},
    {"qwen3.6:27b", "Qwen/Qwen3.6-27B", kQwen36DenseConfig},
}};

constexpr bool NamesAreUnique() {
  for (size_t i = 0; i < kRegistry.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (kRegistry[i].name == kRegistry[j].name) return false;
    }
  }
  return true;
}
static_assert(NamesAreUnique());

bool IsFolder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

std::string Listed(const std::vector<fs::path>& paths) {
  std::string text;
  for (const fs::path& path : paths) {
    if (!text.empty()) text += ", ";
    text += path.string();
  }
  return text;
}

/// Looks one registered model up; remembers where.
class Lookup {
 public:
  Lookup(const RegistryEntry& entry, const SearchPaths& paths)
      : entry_(entry), paths_(paths) {}

  Result<fs::path> Find() {
    SIGNET_ASSIGN_OR_RETURN(std::optional<fs::path> found, InModels());
    if (found) return *std::move(found);
    SIGNET_ASSIGN_OR_RETURN(found, InHub());
    if (found) return *std::move(found);
    if (entry_.name == "demo" && !paths_.demo.empty()) {
      if (IsFolder(paths_.demo)) return paths_.demo;
      looked_at_.push_back(paths_.demo);
    }
    return Reject(RejectionCode::kSourceNotFound, std::string(entry_.name),
                  "the model is not on this machine", {},
                  looked_at_.empty() ? "" : "one of " + Listed(looked_at_));
  }

 private:
  using Maybe = std::optional<fs::path>;

  Result<Maybe> InModels() {
    if (!paths_.models) return Maybe();
    std::vector<fs::path> candidates = {*paths_.models / entry_.name};
    if (!entry_.hub_name.empty()) {
      candidates.push_back(*paths_.models / NameOnHub());
      candidates.push_back(*paths_.models / entry_.hub_name);
    }
    std::vector<fs::path> found;
    for (const fs::path& candidate : candidates) {
      looked_at_.push_back(candidate);
      if (!IsFolder(candidate)) continue;
      // Two names of one folder are no ambiguity.
      const bool is_known =
          std::any_of(found.begin(), found.end(), [&](const fs::path& other) {
            std::error_code ignored;
            return fs::equivalent(candidate, other, ignored);
          });
      if (!is_known) found.push_back(candidate);
    }
    if (found.size() > 1) return Ambiguous(found);
    return found.empty() ? Maybe() : Maybe(found.front());
  }

  Result<Maybe> InHub() {
    if (!paths_.hub || entry_.hub_name.empty()) return Maybe();
    std::string folder_name = fmt::format("models--{}", entry_.hub_name);
    folder_name.replace(folder_name.find('/'), 1, "--");
    const fs::path repository = *paths_.hub / folder_name;
    const fs::path snapshots = repository / "snapshots";
    looked_at_.push_back(snapshots);

    const std::string main = ReadRef(repository / "refs" / "main");
    if (!main.empty() && IsFolder(snapshots / main)) return snapshots / main;

    std::vector<fs::path> found;
    std::error_code ignored;
    for (fs::directory_iterator entry(snapshots, ignored), end;
         !ignored && entry != end; entry.increment(ignored)) {
      if (IsFolder(entry->path())) found.push_back(entry->path());
    }
    std::sort(found.begin(), found.end());
    if (found.size() > 1) return Ambiguous(found);
    return found.empty() ? Maybe() : Maybe(found.front());
  }

  /// The commit that a ref file names; empty when there is none.
  static std::string ReadRef(const fs::path& path) {
    constexpr size_t kMaxCommitBytes = 64;
    std::ifstream file(path);
    std::string commit;
    file >> commit;
    const bool is_plain =
        commit.size() <= kMaxCommitBytes &&
        std::all_of(commit.begin(), commit.end(),
                    [](unsigned char c) { return std::isalnum(c) != 0; });
    return is_plain ? commit : "";
  }

  tl::unexpected<Error> Ambiguous(const std::vector<fs::path>& found) const {
    return Reject(RejectionCode::kSourceAmbiguous, std::string(entry_.name),
                  "the model is there more than once; give one of the paths",
                  Listed(found));
  }

  std::string_view NameOnHub() const {
    return entry_.hub_name.substr(entry_.hub_name.find('/') + 1);
  }

  const RegistryEntry& entry_;
  const SearchPaths& paths_;
  std::vector<fs::path> looked_at_;
};

}  // namespace

std::span<const RegistryEntry> Registry() { return kRegistry; }

const RegistryEntry* FindRegistered(std::string_view name) {
  const auto place =
      std::find_if(kRegistry.begin(), kRegistry.end(),
                   [&](const RegistryEntry& e) { return e.name == name; });
  return place == kRegistry.end() ? nullptr : &*place;
}

Result<fs::path> Resolve(std::string_view path_or_name,
                         const SearchPaths& paths) {
  const fs::path path(path_or_name);
  if (IsFolder(path)) return path;
  if (path_or_name.find('/') != std::string_view::npos) {
    return Reject(RejectionCode::kSourceNotFound, std::string(path_or_name),
                  "there is no such folder");
  }
  const RegistryEntry* entry = FindRegistered(path_or_name);
  if (entry == nullptr) {
    std::string names;
    for (const RegistryEntry& known : kRegistry) {
      if (!names.empty()) names += ", ";
      names += known.name;
    }
    return Reject(RejectionCode::kSourceNotFound, std::string(path_or_name),
                  "neither a folder nor a known name", {},
                  "a folder, or one of " + names);
  }
  return Lookup(*entry, paths).Find();
}

std::vector<FoundModel> ListModels(const SearchPaths& paths) {
  std::vector<FoundModel> models;
  for (const RegistryEntry& entry : kRegistry) {
    FoundModel model{entry.name, entry.hub_name, {}};
    Result<fs::path> folder = Lookup(entry, paths).Find();
    if (folder.has_value()) model.folder = *std::move(folder);
    models.push_back(std::move(model));
  }
  return models;
}

}  // namespace signet::model
