// Weight files that are wrong, or become so while a command uses them: one
// message and an exit status, whatever the command, and never a signal.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "e2e/tiny_checkpoint.h"

namespace signet::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> Command(const std::string& command,
                                 const fs::path& model) {
  if (command == "run") {
    return {"run",   model.string(), "-p",    "a",           "-n",
            "20000", "--ctx",        "25000", "--ignore-eos"};
  }
  if (command == "verify") {
    return {"verify", model.string(), "-n",     "2000",   "--ctx",
            "4000",   "--mesh",       "single", "--mesh", "ep=2"};
  }
  return {"bench", model.string(), "-P", "1000", "-n", "2000", "-b", "1"};
}

void Truncate(const fs::path& folder) {
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".safetensors") {
      fs::resize_file(entry.path(), 0);
    }
  }
}

// Waits until the process has mapped a file of the folder, then for `more`.
void WaitForMapping(pid_t process, const fs::path& folder,
                    std::chrono::milliseconds more) {
  for (int i = 0; i < 30000; ++i) {
    std::ifstream maps("/proc/" + std::to_string(process) + "/maps");
    const std::string text(std::istreambuf_iterator<char>(maps), {});
    if (text.find(folder.string()) != text.npos) {
      std::this_thread::sleep_for(more);
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ADD_FAILURE() << "the files were never mapped";
}

class MappedFile : public ::testing::TestWithParam<std::string> {};

// Early, while it loads, and later, while it computes. A bench measures the
// machine first, which takes seconds.
TEST_P(MappedFile, A3_CutShortEndsInOneFailure) {
  const std::vector<int> moments =
      GetParam() == "bench" ? std::vector{20} : std::vector{0, 20, 400};
  for (const int after_ms : moments) {
    SCOPED_TRACE(after_ms);
    const fs::path folder = CopyOfTinyCheckpoint("cut_" + GetParam());
    Invocation invocation;
    invocation.arguments = Command(GetParam(), folder);
    invocation.arguments.push_back("--json");
    invocation.on_start = [&](pid_t process) {
      WaitForMapping(process, folder, std::chrono::milliseconds(after_ms));
      Truncate(folder);
    };
    const Outcome outcome = Signet(invocation);
    EXPECT_EQ(outcome.exit_code, 1) << outcome.err;
    const json object = json::parse(outcome.out, nullptr, false);
    ASSERT_TRUE(object.is_object()) << outcome.out;
    ASSERT_TRUE(object.contains("failure")) << outcome.out;
    EXPECT_EQ(object["failure"]["kind"], "changed_file");
  }
}

INSTANTIATE_TEST_SUITE_P(Commands, MappedFile,
                         ::testing::Values("run", "verify", "bench"),
                         [](const auto& info) { return info.param; });

// The first bytes of a tensor become a bf16 NaN.
void Poison(const fs::path& folder, const std::string& tensor) {
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".safetensors") continue;
    std::fstream file(entry.path(),
                      std::ios::in | std::ios::out | std::ios::binary);
    uint64_t length = 0;
    file.read(reinterpret_cast<char*>(&length), sizeof length);
    std::string header(length, '\0');
    file.read(header.data(), static_cast<std::streamsize>(length));
    const json tensors = json::parse(header);
    if (!tensors.contains(tensor)) continue;
    const uint64_t at =
        8 + length + tensors[tensor]["data_offsets"][0].get<uint64_t>();
    file.seekp(static_cast<std::streamoff>(at));
    file.write("\xc0\x7f", 2);
    return;
  }
  FAIL() << tensor << " is nowhere";
}

std::vector<std::string> Short(const std::string& command,
                               const fs::path& model) {
  if (command == "run") return {"run", model.string(), "-p", "a", "-n", "1"};
  if (command == "verify") return {"verify", model.string(), "-n", "4"};
  return {"bench", model.string(), "-P", "4", "-n", "2", "-b", "1"};
}

class NanWeights : public ::testing::TestWithParam<std::string> {};

TEST_P(NanWeights, A3_InARouterAreRefusedByName) {
  const fs::path folder = CopyOfTinyCheckpoint("nan_router_" + GetParam());
  Poison(folder, "model.layers.1.mlp.gate.weight");
  const Outcome outcome = Signet(Short(GetParam(), folder));
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_THAT(outcome.out, IsEmpty());
  EXPECT_THAT(outcome.err,
              HasSubstr("weight_not_finite: a weight is not a finite number"));
  EXPECT_THAT(outcome.err,
              HasSubstr("model.layers.1.mlp.gate.weight; got nan at [0,0]"));
}

TEST_P(NanWeights, A3_AnywhereAreRefusedWithVerifyFiles) {
  const fs::path folder = CopyOfTinyCheckpoint("nan_expert_" + GetParam());
  Poison(folder, "model.layers.2.mlp.experts.down_proj");
  std::vector<std::string> arguments = Short(GetParam(), folder);
  arguments.push_back("--verify-files");
  const Outcome outcome = Signet(arguments);
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_THAT(
      outcome.err,
      HasSubstr("model.layers.2.mlp.experts.down_proj; got nan at [0,0,0]"));
  // The same flag on files that are right.
  arguments[1] = TinyCheckpoint().string();
  EXPECT_EQ(Signet(arguments).exit_code, 0);
}

INSTANTIATE_TEST_SUITE_P(Commands, NanWeights,
                         ::testing::Values("run", "verify", "bench"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace signet::testing
