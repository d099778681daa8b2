// What is wrong with what was given: exit 3, before anything runs, one line a
// reason on stderr, with --json one object on standard output.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "e2e/tiny_checkpoint.h"

namespace signet::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

/// Expects the refusal in both forms; `arguments` without --json.
void ExpectRefused(std::vector<std::string> arguments,
                   const std::string& code) {
  SCOPED_TRACE(code);
  const Outcome told = Signet(arguments);
  EXPECT_EQ(told.exit_code, 3) << told.err;
  EXPECT_THAT(told.out, IsEmpty());
  EXPECT_THAT(told.err, HasSubstr(code + ": "));

  arguments.push_back("--json");
  const Outcome as_json = Signet(arguments);
  EXPECT_EQ(as_json.exit_code, 3);
  const auto object = nlohmann::json::parse(as_json.out, nullptr, false);
  ASSERT_TRUE(object.is_object()) << as_json.out;
  EXPECT_EQ(object.size(), 1u);
  bool found = false;
  for (const auto& rejection : object.value("rejections", nlohmann::json())) {
    if (rejection.at("code") == code) found = true;
    EXPECT_THAT(rejection.at("message").get<std::string>(),
                ::testing::Not(IsEmpty()));
  }
  EXPECT_TRUE(found) << as_json.out;
}

std::vector<std::string> RunOf(const fs::path& model,
                               std::vector<std::string> more) {
  std::vector<std::string> arguments = {"run", model.string()};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

TEST(Refusal, MissingModel) {
  ExpectRefused({"run", "/nowhere/at/all", "-p", "a"}, "source_not_found");
  ExpectRefused({"plan", "no-such-name"}, "source_not_found");
  ExpectRefused({"inspect", "/nowhere"}, "source_not_found");
}

TEST(Refusal, Mesh) {
  for (const char* mesh : {"ep=0", "ep=x", "ep=-1", "foo=2", "", "ep="}) {
    SCOPED_TRACE(mesh);
    ExpectRefused(RunOf(TinyCheckpoint(), {"-p", "a", "--mesh", mesh}),
                  "mesh_unparsable");
  }
  ExpectRefused(RunOf(TinyCheckpoint(), {"-p", "a", "--mesh", "ep=2,ep=2"}),
                "mesh_axis_repeated");
}

TEST(Refusal, AFolderNameThatIsNotUtf8EndsNoCommand) {
  const fs::path folder = ScratchFolder("bytes") / "\xff";
  fs::create_directories(folder.parent_path());
  fs::copy(TinyCheckpoint(), folder, fs::copy_options::recursive);
  for (const char* command : {"inspect", "plan"}) {
    const Outcome outcome = Signet({command, folder.string(), "--json"});
    EXPECT_EQ(outcome.exit_code, 0) << command << ": " << outcome.err;
    EXPECT_TRUE(nlohmann::json::accept(outcome.out)) << command;
  }
}

TEST(Refusal, MeshOfSeveralRanksByName) {
  ExpectRefused({"plan", TinyCheckpoint().string(), "--mesh", "tp=2"},
                "mesh_unsupported");
  const Outcome outcome =
      Signet({"plan", TinyCheckpoint().string(), "--mesh", "tp=2"});
  EXPECT_THAT(outcome.err, HasSubstr("tp=2"));
}

TEST(Refusal, Devices) {
  const fs::path& tiny = TinyCheckpoint();
  ExpectRefused(RunOf(tiny, {"-p", "a", "--devices", "abacus"}),
                "devices_invalid");
  ExpectRefused(RunOf(tiny, {"-p", "a", "--devices", "cpu:x"}),
                "devices_invalid");
  ExpectRefused(RunOf(tiny, {"-p", "a", "--devices", "cpu:0,"}),
                "devices_invalid");
  ExpectRefused(RunOf(tiny, {"-p", "a", "--devices", "gpu:77"}),
                "device_unavailable");
}

TEST(Refusal, PlanOptions) {
  const std::string tiny = TinyCheckpoint().string();
  ExpectRefused({"plan", tiny, "--ctx", "0"}, "plan_option_invalid");
  ExpectRefused({"plan", tiny, "--ctx", "-5"}, "plan_option_invalid");
  ExpectRefused({"plan", tiny, "--batch", "0"}, "plan_option_invalid");
  ExpectRefused({"program", tiny, "--rank", "1"}, "plan_option_invalid");
}

TEST(Refusal, Prompt) {
  const fs::path& tiny = TinyCheckpoint();
  ExpectRefused(RunOf(tiny, {"--ids", "1,2,3,4", "--ctx", "3"}),
                "prompt_too_long");
  ExpectRefused(RunOf(tiny, {"--ids", "1,2147483647"}), "request_invalid");
  ExpectRefused(RunOf(tiny, {"-p", ""}), "request_invalid");
  ExpectRefused(RunOf(tiny, {"-p", "\xff\xfe"}), "request_invalid");
}

TEST(Refusal, APromptByWhereItCameFrom) {
  const fs::path& tiny = TinyCheckpoint();
  const fs::path file = ScratchFolder("prompts_long") / "p.txt";
  WriteText(file, "ab\nabcd\n");
  for (const auto& [flag, value, place] :
       {std::tuple<std::string, std::string, std::string>{"--ids", "1,2,3,4",
                                                          "(--ids;"},
        {"-p", "abcd", "(-p;"},
        {"--prompts", file.string(), "(" + file.string() + ":2;"}}) {
    const std::vector<std::string> arguments =
        RunOf(tiny, {flag, value, "--ctx", "3"});
    ExpectRefused(arguments, "prompt_too_long");
    EXPECT_THAT(Signet(arguments).err, HasSubstr(place));
  }
}

TEST(Refusal, TextWithoutTokenizer) {
  const fs::path folder = CopyOfTinyCheckpoint("no_tokenizer");
  fs::remove(folder / "tokenizer.json");
  ExpectRefused(RunOf(folder, {"-p", "a"}), "request_invalid");
}

TEST(Refusal, ChatTemplateThatIsNotKnown) {
  const fs::path folder = CopyOfTinyCheckpoint("chat_other");
  WriteText(folder / "chat_template.jinja", "{{ messages }}");
  ExpectRefused(RunOf(folder, {"-p", "a"}), "tokenizer_unsupported");
  EXPECT_THAT(Signet(RunOf(folder, {"-p", "a"})).err,
              HasSubstr("chat_template.jinja"));
  EXPECT_THAT(Signet(RunOf(folder, {"-p", "a"})).err, HasSubstr("--raw"));
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{"-p", "a", "--raw"}, {"--ids", "1"}}) {
    std::vector<std::string> arguments = RunOf(folder, more);
    arguments.insert(arguments.end(), {"-n", "1"});
    EXPECT_EQ(Signet(arguments).exit_code, 0);
  }
}

TEST(Refusal, ChatTemplateOfTheConfig) {
  const fs::path folder = CopyOfTinyCheckpoint("chat_config");
  WriteText(folder / "tokenizer_config.json", R"({"chat_template": [7]})");
  ExpectRefused(RunOf(folder, {"-p", "a"}), "tokenizer_unsupported");
  // The same code as of the tokens that this tokenizer lacks.
  EXPECT_THAT(Signet(RunOf(folder, {"-p", "a"})).err,
              HasSubstr("tokenizer_config.json: chat_template"));
}

TEST(Refusal, ChatTemplateThatIsNoFile) {
  const fs::path folder = CopyOfTinyCheckpoint("chat_folder");
  fs::create_directories(folder / "chat_template.jinja");
  ExpectRefused(RunOf(folder, {"-p", "a"}), "file_unreadable");
  fs::remove_all(folder / "chat_template.jinja");
  WriteText(folder / "chat_template.jinja", std::string((1 << 20) + 1, ' '));
  ExpectRefused(RunOf(folder, {"-p", "a"}), "file_unreadable");
}

TEST(Refusal, ChatTemplateWithoutItsTokens) {
  const fs::path folder = CopyOfTinyCheckpoint("chat_tokens");
  fs::copy_file(ChatCheckpoint() / "chat_template.jinja",
                folder / "chat_template.jinja",
                fs::copy_options::overwrite_existing);
  ExpectRefused(RunOf(folder, {"-p", "a"}), "tokenizer_unsupported");
  EXPECT_THAT(Signet(RunOf(folder, {"-p", "a"})).err,
              HasSubstr("want <|im_start|>"));
}

TEST(Refusal, WhatNeedsAChatTemplateWithoutOne) {
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{"-p", "a", "--system", "b"},
        {"-p", "a", "--no-think"}}) {
    ExpectRefused(RunOf(TinyCheckpoint(), more), "request_invalid");
    EXPECT_THAT(Signet(RunOf(TinyCheckpoint(), more)).err, HasSubstr(more[2]));
  }
}

TEST(Refusal, PromptsFile) {
  const fs::path file = ScratchFolder("prompts_refused") / "p.txt";
  const auto refuse = [&](const std::string& code, const std::string& place) {
    const std::vector<std::string> arguments =
        RunOf(TinyCheckpoint(), {"--prompts", file.string()});
    ExpectRefused(arguments, code);
    const std::string err = Signet(arguments).err;
    EXPECT_THAT(err, HasSubstr(file.string() + place));
    EXPECT_EQ(std::count(err.begin(), err.end(), '\n'), 1) << err;
  };
  refuse("file_missing", "");
  for (const auto& [content, place] :
       std::vector<std::pair<std::string, std::string>>{
           {"", ";"},
           {"\n", ":1"},
           {"a\n\nb\n", ":2"},
           {"a\nb\n\n", ":3"},
           {"a\r\nb\r\n", ":1; got CR LF"},
           {"a\nb\xff\n", ":2; got 0xFF at byte 1"},
           {"\xEF\xBB\xBF"
            "a\n",
            ":1"}}) {
    WriteText(file, content);
    refuse("request_invalid", place);
  }
  fs::remove(file);
  fs::create_directories(file);
  refuse("file_unreadable", "");
}

TEST(Refusal, BrokenCheckpoint) {
  fs::path folder = CopyOfTinyCheckpoint("no_config");
  fs::remove(folder / "config.json");
  ExpectRefused({"plan", folder.string()}, "file_missing");

  folder = CopyOfTinyCheckpoint("config_text");
  WriteText(folder / "config.json", "{ not json");
  ExpectRefused({"plan", folder.string()}, "json_invalid");

  folder = CopyOfTinyCheckpoint("config_family");
  WriteText(folder / "config.json", R"({"model_type": "abacus"})");
  ExpectRefused({"plan", folder.string()}, "family_unsupported");

  folder = CopyOfTinyCheckpoint("truncated");
  const fs::path shard = FileWithExtension(folder, ".safetensors");
  fs::resize_file(shard, fs::file_size(shard) - 1);
  ExpectRefused({"plan", folder.string()}, "file_truncated");

  folder = CopyOfTinyCheckpoint("header");
  WriteText(FileWithExtension(folder, ".safetensors"), std::string(64, '\xff'));
  ExpectRefused({"plan", folder.string()}, "header_too_large");

  folder = CopyOfTinyCheckpoint("tokenizer");
  WriteText(folder / "tokenizer.json", "[1, 2");
  ExpectRefused(RunOf(folder, {"-p", "a"}), "tokenizer_invalid");
}

TEST(Refusal, ShortOfMemoryAfterThePlan) {
  const std::vector<std::string> arguments = {
      "plan", TinyCheckpoint().string(), "--batch", "4096", "--ctx", "262144"};
  const Outcome told = Signet(arguments);
  EXPECT_EQ(told.exit_code, 3);
  EXPECT_THAT(told.out, HasSubstr("contract "));
  EXPECT_THAT(told.err, HasSubstr("memory_short: "));

  std::vector<std::string> with_json = arguments;
  with_json.push_back("--json");
  const Outcome as_json = Signet(with_json);
  EXPECT_EQ(as_json.exit_code, 3);
  const auto object = nlohmann::json::parse(as_json.out, nullptr, false);
  ASSERT_TRUE(object.is_object()) << as_json.out;
  EXPECT_TRUE(object.contains("contract"));
  EXPECT_EQ(object.at("rejections").at(0).at("code"), "memory_short");

  std::vector<std::string> run = arguments;
  run[0] = "run";
  run.insert(run.end(), {"-p", "a"});
  ExpectRefused(run, "memory_short");
}

TEST(Refusal, SynthIntoAFolderInUse) {
  ExpectRefused({"synth", TinyCheckpoint().string(), TinyCheckpoint().string()},
                "request_invalid");
}

TEST(Refusal, SynthLeavesNothingBehind) {
  const fs::path parent = ScratchFolder("synth");
  ExpectRefused({"synth", "/nowhere/config.json", (parent / "a").string()},
                "source_not_found");
  const Outcome outcome = Signet({"synth", TinyCheckpoint().string(),
                                  (parent / "a").string(), "--layers", "0"});
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_TRUE(fs::is_empty(parent));
}

}  // namespace
}  // namespace signet::testing
