#include "e2e/tiny_checkpoint.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "support/chat_template_text.h"

namespace signet::testing {
namespace {

namespace fs = std::filesystem;

class Scratch {
 public:
  Scratch()
      : path_(fs::temp_directory_path() /
              ("signet_e2e_" + std::to_string(getpid()))) {
    fs::create_directories(path_);
  }
  ~Scratch() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

fs::path MakeTinyCheckpoint() {
  const fs::path folder = ScratchFolder("tiny") / "checkpoint";
  const Outcome outcome =
      Signet({"synth", SIGNET_SOURCE_DIR "/tests/e2e/tiny_config.json",
              folder.string()});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  return folder;
}

fs::path MakeChatCheckpoint() {
  using nlohmann::json;
  fs::path folder = CopyOfTinyCheckpoint("chat");
  WriteText(folder / "chat_template.jinja", kChatTemplateText);
  json tokenizer = json::parse(ReadText(folder / "tokenizer.json"));
  int id = 508;
  for (const char* name :
       {"<|im_start|>", "<|im_end|>", "<think>", "</think>"}) {
    tokenizer["model"]["vocab"].erase("<filler" + std::to_string(id) + ">");
    tokenizer["added_tokens"].push_back({{"id", id++},
                                         {"content", name},
                                         {"special", name[1] == '|'},
                                         {"normalized", false},
                                         {"lstrip", false},
                                         {"rstrip", false},
                                         {"single_word", false}});
  }
  WriteText(folder / "tokenizer.json", tokenizer.dump());
  return folder;
}

}  // namespace

Outcome Signet(const Invocation& invocation) {
  return RunProcess(SIGNET_BINARY, invocation);
}

Outcome Signet(std::vector<std::string> arguments) {
  Invocation invocation;
  invocation.arguments = std::move(arguments);
  return Signet(invocation);
}

fs::path ScratchFolder(std::string_view name) {
  static const Scratch scratch;
  const fs::path folder = scratch.path() / name;
  fs::create_directories(folder);
  return folder;
}

const fs::path& TinyCheckpoint() {
  static const fs::path folder = MakeTinyCheckpoint();
  return folder;
}

fs::path CopyOfTinyCheckpoint(std::string_view name) {
  const fs::path folder = ScratchFolder(name);
  fs::copy(TinyCheckpoint(), folder,
           fs::copy_options::recursive | fs::copy_options::overwrite_existing);
  return folder;
}

const fs::path& ChatCheckpoint() {
  static const fs::path folder = MakeChatCheckpoint();
  return folder;
}

fs::path FileWithExtension(const fs::path& folder, std::string_view extension) {
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == extension) return entry.path();
  }
  ADD_FAILURE() << "no " << extension << " file in " << folder;
  return {};
}

std::string ReadText(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

void WriteText(const fs::path& file, std::string_view text) {
  std::ofstream stream(file, std::ios::binary);
  stream.write(text.data(), static_cast<std::streamsize>(text.size()));
}

}  // namespace signet::testing
