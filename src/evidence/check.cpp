#include "evidence/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <system_error>
#include <utility>

#include "engine/plan_impl.h"
#include "evidence/build_facts.h"
#include "evidence/receipt.h"
#include "evidence/side_plan.h"
#include "evidence/verify.h"
#include "store/content_reader.h"

namespace signet::evidence {
namespace {

namespace fs = std::filesystem;
using ManifestPtr = std::shared_ptr<const model::Manifest>;

// What a terminal may be shown.
std::string OneLine(std::string text) {
  for (char& c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < ' ' || byte == 0x7f) c = '?';
  }
  return text;
}
std::string OneLine(const Error& error) {
  const std::string text = Describe(error);
  return OneLine(text.substr(0, text.find('\n')));
}

// Many receipts are of one model: each is opened once, and read once.
class Models {
 public:
  Models(const SearchPaths& paths, bool verify_files)
      : paths_(paths), verify_files_(verify_files) {}
  const Result<ManifestPtr>& Open(const std::string& name) {
    const auto found = opened_.find(name);
    if (found != opened_.end()) return found->second;
    return opened_.emplace(name, OpenManifest(name, paths_)).first->second;
  }
  bool verifies_files() const { return verify_files_; }
  const Result<Digest>& Content(const ManifestPtr& manifest) {
    const auto found = contents_.find(manifest);
    if (found != contents_.end()) return found->second;
    return contents_.emplace(manifest, store::ContentOf(*manifest))
        .first->second;
  }

 private:
  const SearchPaths& paths_;
  const bool verify_files_;
  std::map<std::string, Result<ManifestPtr>> opened_;
  std::map<ManifestPtr, Result<Digest>> contents_;
};

void CheckModel(const Receipt& receipt, const ManifestPtr& model,
                Models& models, std::vector<std::string>* causes) {
  const model::Manifest& manifest = *model;
  const auto digests = DigestsOf(manifest.checkpoint());
  if (!digests) {
    causes->push_back("the model cannot be read: " + OneLine(digests.error()));
    return;
  }
  const auto compare = [&](const char* what, const Digest& now,
                           const std::string& then) {
    if (now.Hex() == then) return;
    causes->push_back(fmt::format("the model changed: {} are {}, were {}", what,
                                  now.Hex(), then));
  };
  compare("config and headers", digests->headers, receipt.headers);
  compare("tokenizer bytes", digests->tokenizer, receipt.tokenizer);
  if (!models.verifies_files() || !receipt.content) return;
  const Result<Digest>& content = models.Content(model);
  if (!content) {
    causes->push_back("the weights cannot be read: " +
                      OneLine(content.error()));
    return;
  }
  compare("weights", *content, *receipt.content);
}

void CheckContracts(const Receipt& receipt, const ManifestPtr& manifest,
                    std::vector<std::string>* causes) {
  // On the devices on record, which this machine may lack: a contract names
  // none.
  std::vector<SideSpec> specs;
  for (const Receipt::Side& side : receipt.sides) {
    auto mesh = topology::MeshSpec::Parse(side.request.mesh);
    if (!mesh) {
      causes->push_back("its sides cannot be planned: " +
                        OneLine(mesh.error()));
      return;
    }
    specs.push_back({*std::move(mesh), side.devices});
  }
  const auto options = OptionsOfSides(specs, receipt.options);
  if (!options) {
    causes->push_back("its sides cannot be planned: " +
                      OneLine(options.error()));
    return;
  }
  for (size_t i = 0; i < specs.size(); ++i) {
    const std::string& mesh = receipt.sides[i].request.mesh;
    const auto plan = PlanOfSide(manifest, specs[i], (*options)[i]);
    if (!plan) {
      causes->push_back(
          fmt::format("{} cannot be planned: {}", mesh, OneLine(plan.error())));
      continue;
    }
    const std::string now = (*plan)->contract_id().Hex();
    if (now == receipt.sides[i].contract) continue;
    causes->push_back(
        fmt::format("the contract of {} changed: it is {}, was "
                    "{}",
                    mesh, now, receipt.sides[i].contract));
  }
}

CheckedReceipt Check(const fs::path& file, Models& models) {
  CheckedReceipt checked{
      .file = file, .state = ReceiptState::kHolds, .causes = {}, .command = {}};
  if (OneLine(file.string()) != file.string()) {
    checked.state = ReceiptState::kInvalid;
    checked.causes.push_back("the file's name has a control character");
    return checked;
  }
  const Result<Receipt> receipt = ReadReceipt(file);
  if (!receipt) {
    checked.state = ReceiptState::kInvalid;
    checked.causes.push_back(OneLine(receipt.error()));
    return checked;
  }
  checked.command = RenewingCommand(*receipt, file);
  const std::string code = FactsOfThisBuild().execution_code;
  if (code != receipt->execution_code) {
    checked.causes.push_back(
        fmt::format("the execution code changed: it is {}, was {}",
                    code.substr(0, 16), receipt->execution_code.substr(0, 16)));
  }
  const Result<ManifestPtr>& manifest = models.Open(receipt->model);
  if (manifest) {
    CheckModel(*receipt, *manifest, models, &checked.causes);
    CheckContracts(*receipt, *manifest, &checked.causes);
  } else {
    checked.causes.push_back("the model cannot be opened: " +
                             OneLine(manifest.error()));
  }
  if (!checked.causes.empty()) checked.state = ReceiptState::kVoid;
  if (!receipt->holds) {
    checked.state = ReceiptState::kDifferent;
    checked.causes.insert(checked.causes.begin(), "it records a difference");
  }
  return checked;
}

}  // namespace

std::string_view Name(ReceiptState state) {
  switch (state) {
    case ReceiptState::kHolds:
      return "holds";
    case ReceiptState::kVoid:
      return "void";
    case ReceiptState::kDifferent:
      return "different";
    case ReceiptState::kInvalid:
      return "invalid";
  }
  return "";
}

Result<std::vector<CheckedReceipt>> CheckReceipts(const fs::path& folder,
                                                  const SearchPaths& paths,
                                                  bool verify_files) {
  std::error_code error;
  fs::directory_iterator entries(folder, error);
  if (error) {
    return Reject(RejectionCode::kFileMissing, folder.string(),
                  "the folder of receipts cannot be read", error.message());
  }
  std::vector<fs::path> files;
  for (; entries != fs::directory_iterator(); entries.increment(error)) {
    if (entries->path().extension() == ".json") {
      files.push_back(entries->path());
    }
    if (error) break;
  }
  std::sort(files.begin(), files.end());
  Models models(paths, verify_files);
  std::vector<CheckedReceipt> checked;
  for (const fs::path& file : files) checked.push_back(Check(file, models));
  return checked;
}

std::string CheckText(const fs::path& folder,
                      const std::vector<CheckedReceipt>& receipts) {
  std::string text;
  int64_t holding = 0;
  for (const CheckedReceipt& receipt : receipts) {
    holding += receipt.state == ReceiptState::kHolds ? 1 : 0;
    text += fmt::format("{:<9}  {}\n", Name(receipt.state),
                        OneLine(receipt.file.string()));
    for (const std::string& cause : receipt.causes) {
      text += "           " + cause + '\n';
    }
    if (!receipt.causes.empty() && !receipt.command.empty()) {
      text += "           renew: " + receipt.command + '\n';
    }
  }
  return text + fmt::format("{} of {} receipts in {} hold\n", holding,
                            receipts.size(), folder.string());
}

nlohmann::ordered_json CheckJson(const fs::path& folder,
                                 const std::vector<CheckedReceipt>& receipts) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  int64_t holding = 0;
  for (const CheckedReceipt& receipt : receipts) {
    holding += receipt.state == ReceiptState::kHolds ? 1 : 0;
    list.push_back({{"file", receipt.file.string()},
                    {"state", Name(receipt.state)},
                    {"causes", receipt.causes},
                    {"command", receipt.command}});
  }
  return {{"folder", folder.string()},
          {"holding", holding},
          {"receipts", std::move(list)}};
}

}  // namespace signet::evidence
