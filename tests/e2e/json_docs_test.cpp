// docs/json.md lists every key of every object, and nothing else. A section
// `## NAME` of it holds rows | `key` | ... |; a key inside an object is
// `outer.inner`, inside the objects of a list `outer[].inner`. A row
// | `key`, if any | ... | is of a key that this checkpoint need not have.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "e2e/tiny_checkpoint.h"

namespace signet::testing {
namespace {

using nlohmann::json;
using Keys = std::set<std::string>;

struct Section {
  Keys always;
  Keys if_any;
};

std::map<std::string, Section> DocumentedSections() {
  std::map<std::string, Section> sections;
  std::istringstream text(ReadText(SIGNET_SOURCE_DIR "/docs/json.md"));
  std::string name;
  std::string line;
  while (std::getline(text, line)) {
    if (line.rfind("## ", 0) == 0) {
      name = line.substr(3);
    } else if (line.rfind("| `", 0) == 0) {
      const size_t end = line.find('`', 3);
      const bool is_optional = line.compare(end, 9, "`, if any") == 0;
      Section& section = sections[name];
      (is_optional ? section.if_any : section.always)
          .insert(line.substr(3, end - 3));
    }
  }
  return sections;
}

void CollectKeys(const json& value, const std::string& prefix, Keys& keys) {
  if (value.is_array()) {
    for (const json& element : value) CollectKeys(element, prefix + "[]", keys);
  }
  if (!value.is_object()) return;
  for (const auto& [key, inner] : value.items()) {
    const std::string path = prefix.empty() ? key : prefix + "." + key;
    keys.insert(path);
    CollectKeys(inner, path, keys);
  }
}

/// The keys of the one object that `arguments` and --json print.
Keys PrintedKeys(std::vector<std::string> arguments, int exit_code) {
  arguments.push_back("--json");
  const Outcome outcome = Signet(arguments);
  EXPECT_EQ(outcome.exit_code, exit_code) << outcome.err;
  const json object = json::parse(outcome.out, nullptr, false);
  EXPECT_TRUE(object.is_object()) << outcome.out;
  Keys keys;
  CollectKeys(object, "", keys);
  return keys;
}

void ExpectDocumented(const std::string& name, const Keys& printed) {
  const std::map<std::string, Section> sections = DocumentedSections();
  const auto found = sections.find(name);
  ASSERT_NE(found, sections.end()) << "no section " << name;
  Keys expected = found->second.always;
  for (const std::string& key : found->second.if_any) {
    if (printed.contains(key)) expected.insert(key);
  }
  EXPECT_THAT(printed, ::testing::ContainerEq(expected));
}

TEST(JsonDocs, Run) {
  ExpectDocumented(
      "run",
      PrintedKeys({"run", TinyCheckpoint().string(), "-p", "a", "-n", "2"}, 0));
}

TEST(JsonDocs, RunOfPrompts) {
  const auto file = ScratchFolder("docs_prompts") / "prompts.txt";
  WriteText(file, "a\nb\n");
  ExpectDocumented("run", PrintedKeys({"run", TinyCheckpoint().string(),
                                       "--prompts", file.string(), "-n", "2"},
                                      0));
}

TEST(JsonDocs, Plan) {
  ExpectDocumented("plan", PrintedKeys({"plan", TinyCheckpoint().string()}, 0));
}

TEST(JsonDocs, Inspect) {
  ExpectDocumented("inspect",
                   PrintedKeys({"inspect", TinyCheckpoint().string()}, 0));
}

TEST(JsonDocs, Program) {
  ExpectDocumented("program",
                   PrintedKeys({"program", TinyCheckpoint().string()}, 0));
}

TEST(JsonDocs, Verify) {
  const std::string model = TinyCheckpoint().string();
  ExpectDocumented("verify", PrintedKeys({"verify", model, "--mesh", "single",
                                          "--mesh", "ep=2", "-n", "12"},
                                         0));
  ExpectDocumented("verify",
                   PrintedKeys({"verify", model, "--mesh", "single", "--mesh",
                                "ep=2", "-n", "12", "--inject", "wrong-token"},
                               4));
}

TEST(JsonDocs, EvidenceCheck) {
  const auto folder = ScratchFolder("docs_evidence");
  std::filesystem::create_directories(folder);
  WriteText(folder / "no_receipt.json", "{}");
  ExpectDocumented("evidence check",
                   PrintedKeys({"evidence", "check", folder.string()}, 0));
}

TEST(JsonDocs, Bench) {
  ExpectDocumented("bench", PrintedKeys({"bench", TinyCheckpoint().string(),
                                         "--devices", "cpu", "-P", "8", "-n",
                                         "4", "-b", "1,2", "--profile"},
                                        0));
}

TEST(JsonDocs, Models) {
  ExpectDocumented("models", PrintedKeys({"models"}, 0));
}

TEST(JsonDocs, Devices) {
  ExpectDocumented("devices", PrintedKeys({"devices"}, 0));
}

TEST(JsonDocs, Synth) {
  const auto folder = ScratchFolder("docs") / "synth";
  ExpectDocumented(
      "synth",
      PrintedKeys({"synth", TinyCheckpoint().string(), folder.string()}, 0));
}

TEST(JsonDocs, Refusals) {
  ExpectDocumented("refusals", PrintedKeys({"plan", "/nowhere"}, 3));
}

}  // namespace
}  // namespace signet::testing
