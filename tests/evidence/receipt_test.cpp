// Receipts (contract E2): what is written is read again; each cause makes them
// void; bytes from anywhere are refused or checked, never believed.

#include "evidence/receipt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "evidence/build_facts.h"
#include "evidence/check.h"
#include "evidence/verify_testing.h"
#include "store/content_reader.h"
#include "support/running_model.h"
#include "support/temporary_folder.h"

namespace signet::testing {
namespace {

namespace fs = std::filesystem;
using evidence::CheckedReceipt;
using evidence::Receipt;
using evidence::ReceiptState;
using nlohmann::ordered_json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

fs::path Folder(const std::string& name) {
  const fs::path folder = TemporaryFolder() / ("receipts_" + name);
  fs::create_directories(folder);
  return folder;
}

void Write(const fs::path& file, std::string_view text) {
  std::ofstream(file, std::ios::binary) << text;
}

std::string Read(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

// The receipt of a short verification; made once.
const ordered_json& Sample() {
  static const ordered_json receipt = [] {
    evidence::VerifyRequest request =
        RequestFor(Tiny("moe_top1"), {"single", "ep=2"}, 23);
    request.options.batch = 2;
    return evidence::ReceiptJson(ValueOrDie(evidence::Verify(request)), "b1d");
  }();
  return receipt;
}

std::vector<CheckedReceipt> Check(const fs::path& folder,
                                  bool verify_files = false) {
  return ValueOrDie(evidence::CheckReceipts(folder, {}, verify_files));
}

TEST(Receipt, E2_SaysWhatWasCompared) {
  const ordered_json& receipt = Sample();
  EXPECT_EQ(receipt["signet_receipt"], 1);
  EXPECT_EQ(receipt["build"], "b1d");
  EXPECT_EQ(receipt["execution_code"].get<std::string>().size(), 64u);
  EXPECT_EQ(receipt["compiler"], evidence::FactsOfThisBuild().compiler);
  EXPECT_THAT(receipt["flags"].get<std::string>(),
              HasSubstr("-ffp-contract=off"));
  EXPECT_EQ(receipt["holds"], true);
  EXPECT_EQ(receipt["emulated"], true);
  EXPECT_EQ(receipt["prompt"].size(), 21u);
  EXPECT_EQ(receipt["positions"], 23);
  ASSERT_EQ(receipt["sides"].size(), 2u);
  const ordered_json& side = receipt["sides"][1];
  EXPECT_EQ(side["mesh"], "ep=2");
  EXPECT_EQ(side["rule"], "bitwise");
  EXPECT_EQ(side["emulated"], true);
  EXPECT_EQ(side["binding"]["devices"].size(), 2u);
  EXPECT_EQ(side["binding"]["devices"][1]["name"], "cpu:1");
  EXPECT_GT(side["binding"]["epoch"].get<int64_t>(), 0);
  EXPECT_NE(side["binding"]["contract"],
            receipt["sides"][0]["binding"]["contract"]);
  EXPECT_EQ(side["digests"].size(), 23u);
  EXPECT_EQ(side["digests"], receipt["sides"][0]["digests"]);
}

TEST(Receipt, E2_IsReadAsItWasWritten) {
  const fs::path file = Folder("round") / "a.json";
  ASSERT_TRUE(evidence::WriteReceipt(Sample(), file).has_value());
  const Receipt receipt = ValueOrDie(evidence::ReadReceipt(file));
  EXPECT_EQ(receipt.execution_code,
            evidence::FactsOfThisBuild().execution_code);
  EXPECT_TRUE(receipt.holds);
  EXPECT_EQ(receipt.prompt.size(), 21u);
  EXPECT_EQ(receipt.positions, 23);
  EXPECT_EQ(receipt.options.batch, 2);
  EXPECT_EQ(receipt.options.prefill_chunks, (std::vector<int64_t>{8, 16}));
  ASSERT_EQ(receipt.sides.size(), 2u);
  EXPECT_EQ(receipt.sides[1].request.mesh, "ep=2");
  // Nothing else is left in the folder, and the next writer replaces it.
  ASSERT_TRUE(evidence::WriteReceipt(Sample(), file).has_value());
  EXPECT_EQ(std::distance(fs::directory_iterator(file.parent_path()), {}), 1);
}

TEST(Receipt, E2_WritesOverReceiptsOnly) {
  const fs::path folder = Folder("over");
  Write(folder / "notes.json", "{\"mine\": 1}");
  Write(folder / "empty.json", "");
  fs::create_directories(folder / "folder.json");
  fs::create_symlink("/nowhere", folder / "link.json");
  mkfifo((folder / "pipe.json").c_str(), 0600);
  for (const char* name :
       {"notes.json", "empty.json", "folder.json", "link.json", "pipe.json"}) {
    const auto written = evidence::WriteReceipt(Sample(), folder / name);
    ASSERT_FALSE(written.has_value()) << name;
    EXPECT_TRUE(
        std::get<Rejections>(written.error()).Has(RejectionCode::kJsonInvalid))
        << name;
  }
  EXPECT_EQ(Read(folder / "notes.json"), "{\"mine\": 1}");
  const auto nowhere =
      evidence::WriteReceipt(Sample(), folder / "none" / "a.json");
  ASSERT_FALSE(nowhere.has_value());
  EXPECT_TRUE(
      std::get<Rejections>(nowhere.error()).Has(RejectionCode::kFileMissing));
}

TEST(Receipt, E2_ADigestThatALoadMakesUnaskedIsNotAskedFor) {
  Receipt receipt =
      ValueOrDie(evidence::ParseReceipt(Sample().dump(), "a.json"));
  receipt.content = "0123456789abcdef0123456789abcdef";
  EXPECT_THAT(evidence::RenewingCommand(receipt, "a.json"),
              HasSubstr(" --verify-files "));
  receipt.sides[0].devices[0].backend = "gpu";
  EXPECT_THAT(evidence::RenewingCommand(receipt, "a.json"),
              Not(HasSubstr("--verify-files")));
}

// Other values in files of the same form: no header tells.
TEST(Check, E2_OtherWeightsAreSeenWhereThatIsAskedFor) {
  const fs::path folder = Folder("content");
  const fs::path model = Folder("content_model");
  fs::copy(Tiny("moe_top1"), model, fs::copy_options::recursive);
  evidence::VerifyRequest request = RequestFor(model, {"single"}, 23);
  EXPECT_EQ(evidence::ReceiptJson(ValueOrDie(evidence::Verify(request)), "b")
                .at("model_digest")
                .at("content"),
            nullptr);
  request.verify_files = true;
  const ordered_json receipt =
      evidence::ReceiptJson(ValueOrDie(evidence::Verify(request)), "b");
  const auto manifest = OpenManifest(model);
  EXPECT_EQ(receipt["model_digest"]["content"],
            ValueOrDie(store::ContentOf(*manifest)).Hex());
  ASSERT_TRUE(evidence::WriteReceipt(receipt, folder / "a.json").has_value());
  EXPECT_EQ(Check(folder, true)[0].state, ReceiptState::kHolds);
  EXPECT_THAT(Check(folder)[0].command, HasSubstr(" --verify-files "));

  const model::FileRange weight = manifest->weights()[WeightId(0)].source;
  std::fstream file(manifest->checkpoint().weight_files()[weight.file].path(),
                    std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(weight.begin_bytes));
  file.put('\x11');
  file.close();
  EXPECT_EQ(Check(folder)[0].state, ReceiptState::kHolds);
  const CheckedReceipt checked = Check(folder, true)[0];
  EXPECT_EQ(checked.state, ReceiptState::kVoid);
  EXPECT_THAT(checked.causes,
              ElementsAre(HasSubstr("the model changed: weights are ")));
}

TEST(Check, E2_AFreshReceiptHolds) {
  const fs::path folder = Folder("fresh");
  Write(folder / "a.json", Sample().dump());
  Write(folder / "b.txt", "not looked at");
  const auto checked = Check(folder);
  ASSERT_EQ(checked.size(), 1u);
  EXPECT_EQ(checked[0].state, ReceiptState::kHolds)
      << evidence::CheckText(folder, checked);
  EXPECT_THAT(checked[0].causes, IsEmpty());
  EXPECT_EQ(
      checked[0].command, "signet verify " + Tiny("moe_top1").string() +
                              " --mesh single --mesh ep=2 --ids " +
                              [] {
                                std::string ids = Sample()["prompt"].dump();
                                return ids.substr(1, ids.size() - 2);
                              }() +
                              " -n 23 --ctx 256 --batch 2 --out " +
                              (folder / "a.json").string());
  EXPECT_THAT(evidence::CheckText(folder, checked),
              HasSubstr("1 of 1 receipts"));
}

// The one receipt of `folder`, after an edit.
CheckedReceipt CheckEdited(const std::string& name,
                           const std::function<void(ordered_json&)>& edit) {
  const fs::path folder = Folder("edited_" + name);
  ordered_json receipt = Sample();
  edit(receipt);
  Write(folder / "a.json", receipt.dump());
  return Check(folder).at(0);
}

TEST(Check, E2_EachCauseMakesAReceiptVoid) {
  const std::string other(64, '0');
  const CheckedReceipt code = CheckEdited(
      "code", [&](ordered_json& r) { r["execution_code"] = other; });
  EXPECT_EQ(code.state, ReceiptState::kVoid);
  EXPECT_THAT(code.causes, ElementsAre(HasSubstr("execution code changed")));
  EXPECT_THAT(code.command, HasSubstr("--out"));

  const CheckedReceipt headers = CheckEdited("headers", [&](ordered_json& r) {
    r["model_digest"]["headers"] = other.substr(32);
  });
  EXPECT_EQ(headers.state, ReceiptState::kVoid);
  EXPECT_THAT(headers.causes, ElementsAre(HasSubstr("the model changed")));

  const CheckedReceipt tokenizer =
      CheckEdited("tokenizer", [&](ordered_json& r) {
        r["model_digest"]["tokenizer"] = other.substr(32);
      });
  EXPECT_THAT(tokenizer.causes, ElementsAre(HasSubstr("tokenizer")));

  const CheckedReceipt contract = CheckEdited("contract", [&](ordered_json& r) {
    r["sides"][1]["binding"]["contract"] = other.substr(32);
  });
  EXPECT_EQ(contract.state, ReceiptState::kVoid);
  EXPECT_THAT(contract.causes,
              ElementsAre(HasSubstr("the contract of ep=2 changed")));

  const CheckedReceipt gone = CheckEdited(
      "gone", [](ordered_json& r) { r["model"] = "/nowhere/model"; });
  EXPECT_EQ(gone.state, ReceiptState::kVoid);
  EXPECT_THAT(gone.causes, ElementsAre(HasSubstr("cannot be opened")));

  const CheckedReceipt options = CheckEdited(
      "options", [](ordered_json& r) { r["options"]["context"] = 128; });
  EXPECT_EQ(options.causes.size(), 2u);

  const CheckedReceipt red =
      CheckEdited("red", [](ordered_json& r) { r["holds"] = false; });
  EXPECT_EQ(red.state, ReceiptState::kDifferent);
}

TEST(Check, E2_TheCommandIsSafeToPaste) {
  const CheckedReceipt quoted = CheckEdited("quoted", [](ordered_json& r) {
    r["model"] = "a; rm -rf 'b' $(c)";
    r["prompt_text"] = "line\nan\x1b[31m escape's \\";
  });
  EXPECT_THAT(quoted.command,
              HasSubstr("signet verify 'a; rm -rf '\\''b'\\'' $(c)' --mesh"));
  EXPECT_THAT(quoted.command,
              HasSubstr("-p $'line\\x0aan\\x1b[31m escape\\'s \\\\'"));
}

TEST(Check, E2_WhatIsNoReceiptIsSaidToBeNone) {
  const fs::path folder = Folder("hostile");
  const std::string good = Sample().dump();
  int count = 0;
  const auto add = [&](std::string_view text) {
    Write(folder / (std::to_string(100 + count++) + ".json"), text);
  };
  const auto edit = [&](const std::function<void(ordered_json&)>& change) {
    ordered_json receipt = Sample();
    change(receipt);
    add(receipt.dump());
  };
  add("");
  add("{}");
  add("[]");
  add("null");
  add("\xff\xfe");
  add(good.substr(0, good.size() / 2));
  add("{\"signet_receipt\": 1, \"signet_receipt\": 1}");
  add(std::string(100000, '['));
  edit([](ordered_json& r) { r["signet_receipt"] = 2; });
  edit([](ordered_json& r) { r["execution_code"] = 5; });
  edit([](ordered_json& r) { r["execution_code"] = "xyz"; });
  edit([](ordered_json& r) { r["holds"] = "yes"; });
  edit([](ordered_json& r) { r["model"] = "an\x1b[2Jescape"; });
  edit([](ordered_json& r) { r["model_digest"] = nullptr; });
  edit([](ordered_json& r) { r["prompt"] = {-1}; });
  edit([](ordered_json& r) { r["prompt"] = {2.5}; });
  edit([](ordered_json& r) { r["prompt"] = ordered_json::array(); });
  edit([](ordered_json& r) { r["positions"] = 3; });
  edit([](ordered_json& r) { r["positions"] = uint64_t{1} << 63; });
  edit([](ordered_json& r) { r["options"]["kv"] = "f16"; });
  edit([](ordered_json& r) { r["options"].erase("context"); });
  edit([](ordered_json& r) { r["sides"] = ordered_json::array(); });
  edit([](ordered_json& r) { r["sides"][0] = 7; });
  edit([](ordered_json& r) { r["sides"][1]["mesh"] = "ep=\n2"; });
  edit([](ordered_json& r) { r["sides"][1]["digests"].erase(0); });
  edit([](ordered_json& r) { r["sides"][1]["binding"].erase("contract"); });
  fs::create_directories(folder / "a_folder.json");
  mkfifo((folder / "a_pipe.json").c_str(), 0600);
  fs::create_symlink("loop.json", folder / "loop.json");
  Write(folder / "new\nline.json", good);
  const auto checked = Check(folder);
  EXPECT_EQ(checked.size(), static_cast<size_t>(count) + 4);
  for (const CheckedReceipt& receipt : checked) {
    EXPECT_EQ(receipt.state, ReceiptState::kInvalid) << receipt.file;
    EXPECT_EQ(receipt.causes.size(), 1u);
    EXPECT_THAT(receipt.command, IsEmpty());
  }
  // A mesh or list that nobody can have is a cause, not an error.
  const CheckedReceipt mesh = CheckEdited(
      "mesh", [](ordered_json& r) { r["sides"][1]["mesh"] = "ep=4000,q=2"; });
  EXPECT_EQ(mesh.state, ReceiptState::kVoid);
  EXPECT_THAT(mesh.causes, ElementsAre(HasSubstr("cannot be planned")));
  for (const CheckedReceipt& receipt : checked) {
    EXPECT_EQ(evidence::CheckText(folder, {receipt}).find('\x1b'),
              std::string::npos);
  }
}

TEST(Check, E2_AMissingFolderIsRefused) {
  const auto checked = evidence::CheckReceipts("/nowhere/evidence", {});
  ASSERT_FALSE(checked.has_value());
  EXPECT_TRUE(
      std::get<Rejections>(checked.error()).Has(RejectionCode::kFileMissing));
}

}  // namespace
}  // namespace signet::testing
