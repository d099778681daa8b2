// Fails allocations of every public call in turn: the call succeeds or ends in
// an error, never in the end of the process, and made again it gives what it
// always gave. Prints the points it walked.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "engine/demo_engine.h"
#include "out_of_memory/failing_allocator.h"
#include "support/chat_template_text.h"
#include "support/temporary_folder.h"

namespace signet::testing {
namespace {

namespace fs = std::filesystem;

// What the walk looks at, per way to fail: the first points one by one, then
// so many spread over the rest.
constexpr int64_t kFirstPoints = 10;
constexpr int64_t kSpreadPoints = 25;
constexpr int64_t kEveryPoint = kNoAllocation;
// How often, per way to fail, the call is made again.
constexpr size_t kAgain = 35;

std::vector<int64_t> PointsOf(int64_t count, int64_t spread = kSpreadPoints) {
  std::vector<int64_t> points;
  const int64_t stride = std::max<int64_t>(1, count / spread);
  for (int64_t i = 0; i < count; i += i < kFirstPoints ? 1 : stride) {
    points.push_back(i);
  }
  return points;
}

bool IsOutOfMemory(const Error& error) {
  const auto* failure = std::get_if<Failure>(&error);
  return failure != nullptr && failure->kind == FailureKind::kMemory;
}

/// Fails `call`, which returns a Result, at its points; `say` turns what a call
/// gave into text, the same for every call, and takes away what it wrote.
template <typename Call, typename Say>
void Walk(const char* name, const Call& call, const Say& say,
          int64_t spread = kSpreadPoints) {
  using Given = decltype(call());
  const auto give = [&](const AllocationFault& fault, int64_t* count) {
    std::optional<Given> given;
    {
      const AllocationWatch watch(fault);
      given.emplace(call());
      *count = watch.count();
    }
    return *std::move(given);
  };
  const AllocationFault none;
  int64_t count = 0;
  Given first = give(none, &count);  // caches fill
  ASSERT_TRUE(first.has_value()) << name;
  const std::string expected = say(*first);
  Given good = give(none, &count);
  ASSERT_TRUE(good.has_value()) << name;
  ASSERT_EQ(say(*good), expected);
  const std::vector<int64_t> points = PointsOf(count, spread);
  int64_t errors = 0;
  for (const bool all_after : {false, true}) {
    for (size_t i = 0; i < points.size(); ++i) {
      const int64_t point = points[i];
      SCOPED_TRACE(std::string(name) + ", allocation " + std::to_string(point) +
                   (all_after ? " and all after it" : ""));
      {
        Given given = give({.first = point, .all_after = all_after}, &count);
        if (given.has_value()) {
          EXPECT_EQ(say(*given), expected);
        } else {
          ++errors;
          EXPECT_TRUE(IsOutOfMemory(given.error())) << Describe(given.error());
        }
      }
      if (i % (points.size() / kAgain + 1) != 0) continue;
      Given again = give(none, &count);
      ASSERT_TRUE(again.has_value());
      EXPECT_EQ(say(*again), expected);
    }
  }
  std::printf("%-10s %7ld allocations, %3zu points twice, %3ld errors\n", name,
              static_cast<long>(count), points.size(),
              static_cast<long>(errors));
  EXPECT_GT(errors, 0) << name;
}

Source OpenDemo() { return ValueOrDie(Source::Open(DemoFolder(), {})); }

std::string ContractOf(const Model& model) {
  const auto ids = ValueOrDie(model.Encode("Alice was"));
  return model.contract_id() + " " + std::to_string(ids.size());
}

class OutOfMemory : public ::testing::TestWithParam<const char*> {
 protected:
  PlanOptions options() const {
    return {.mesh = GetParam(), .devices = "cpu", .context = 256, .batch = 2};
  }
};

TEST(OutOfMemoryOf, Source) {
  const std::string folder = DemoFolder();
  Walk(
      "open", [&] { return Source::Open(folder, {}); },
      [](const Source& source) { return ValueOrDie(source.InspectText()); });
  const Source source = OpenDemo();
  const auto same = [](const std::string& text) { return text; };
  Walk("inspect", [&] { return source.InspectText(); }, same);
  // The demo has no chat template: the refusal is what the call gives.
  const auto refusal = [&]() -> Result<Rejections> {
    Result<void> checked = source.CheckChat();
    auto* refused = std::get_if<Rejections>(&checked.error());
    if (refused != nullptr) return std::move(*refused);
    return tl::unexpected<Error>(std::move(checked).error());
  };
  Walk("chat", refusal,
       [](const Rejections& given) { return Describe(given); });
  const SearchPaths paths = {.models = "/nowhere", .demo = folder};
  Walk(
      "models", [&] { return ListModels(paths); },
      [](const std::vector<ModelListing>& list) {
        std::string names;
        for (const ModelListing& one : list) names += one.name + " ";
        return names;
      });
}

// Every part that is edited, and lists and objects where nothing reads them.
constexpr const char* kConfigText = R"({
  "architectures": [["of", "none"], {"known": [1]}],
  "model_type": "qwen3_5_moe_text",
  "bos_token_id": [[7, 8], 279], "eos_token_id": [1, 2, 279],
  "dtype": {"of": ["none", {"known": 2}]},
  "signet_tokenizer": [[3]], "signet_synth_seed": {"a": {"b": 4}},
  "hidden_size": 8, "vocab_size": 280, "rms_norm_eps": 1e-6,
  "num_hidden_layers": 2,
  "layer_types": ["linear_attention", "full_attention"],
  "mlp_only_layers": [0, 1], "intermediate_size": 6,
  "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8,
  "rope_parameters": {"rope_theta": 10000.0, "partial_rotary_factor": 0.5},
  "linear_num_key_heads": 1, "linear_num_value_heads": 2,
  "linear_key_head_dim": 4, "linear_value_head_dim": 4,
  "linear_conv_kernel_dim": 4,
  "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 6,
  "shared_expert_intermediate_size": 5
})";

std::string ReadFile(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

// All that lies in `folder`, names and bytes.
std::string Contents(const fs::path& folder) {
  std::map<fs::path, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    files[entry.path()] = entry.is_directory() ? "" : ReadFile(entry.path());
  }
  std::string text;
  for (const auto& [path, bytes] : files) text += path.string() + "\n" + bytes;
  return text;
}

std::string WrittenConfig() {
  const fs::path path = TemporaryFolder() / "config.json";
  std::ofstream(path) << kConfigText;
  return path.string();
}

TEST(OutOfMemoryOf, Synthesis) {
  const fs::path folder = TemporaryFolder() / "synthesis";
  fs::create_directory(folder);
  SynthRequest request = {.config = WrittenConfig(),
                          .folder = folder / "made",
                          .layers = 1,
                          .vocab = 8,
                          .threads = 2};
  // What a failed call left behind would be among the contents.
  const auto contents = [&](const std::string& said) {
    const std::string text = said + "\n" + Contents(folder);
    fs::remove_all(request.folder);
    return text;
  };
  const auto synthesize = [&] { return Synthesize(request); };
  Walk("synth", synthesize, contents, kEveryPoint);
  request.vocab = 256;  // of as many tokens as bytes a tokenizer is made
  Walk("tokenizer", synthesize, contents);
  request.config = DemoFolder();
  request.vocab.reset();  // its own tokenizer fits
  request.sparse = true;
  Walk("copied", synthesize, contents);
}

TEST(OutOfMemoryOf, ListsOfAConfig) {
  const fs::path folder = TemporaryFolder() / "lists";
  ValueOrDie(Synthesize({.config = WrittenConfig(), .folder = folder}));
  const nlohmann::json named = {
      {"chat_template",
       {{{"name", "tools"}, {"template", "x"}},
        {{"name", "default"}, {"template", kChatTemplateText}}}}};
  std::ofstream(folder / "tokenizer_config.json") << named;
  const std::string path = folder.string();
  Walk(
      "open", [&] { return Source::Open(path, {}); },
      [](const Source& source) {
        EXPECT_TRUE(source.CheckChat().has_value());
        return ValueOrDie(source.InspectText());
      },
      kEveryPoint);
  const Source source = ValueOrDie(Source::Open(path, {}));
  const auto same = [](const std::string& text) { return text; };
  Walk("in JSON", [&] { return source.InspectJson(); }, same, kEveryPoint);
}

TEST_P(OutOfMemory, Plan) {
  const Source source = OpenDemo();
  const PlanOptions wanted = options();
  Walk(
      "plan", [&] { return Plan::Make(source, wanted); },
      [](const Plan& plan) { return ValueOrDie(plan.Text()); });
  const Plan plan = ValueOrDie(Plan::Make(source, wanted));
  const auto same = [](const std::string& text) { return text; };
  Walk("text", [&] { return plan.Text(); }, same);
  Walk("in JSON", [&] { return plan.Json(); }, same, kEveryPoint);
  Walk(
      "program", [&] { return plan.ProgramText(0, ShapeKind::kDecode, 1); },
      same);
}

TEST_P(OutOfMemory, LoadAndSession) {
  const Plan plan = ValueOrDie(Plan::Make(OpenDemo(), options()));
  Walk(
      "engine", [&] { return Engine::Make({.threads = 2}); },
      [](const Engine&) { return std::string(); });
  Engine engine = ValueOrDie(Engine::Make({.threads = 2}));
  Walk("load", [&] { return engine.Load(plan, {}); }, ContractOf);
  Engine verifying =
      ValueOrDie(Engine::Make({.threads = 2, .verify_files = true}));
  Walk(
      "verified", [&] { return verifying.Load(plan, {}); },
      [](const Model& model) { return model.content_digest().value(); });

  Model model = ValueOrDie(engine.Load(plan, {}));
  Walk(
      "session", [&] { return Session::Make(model, 2); },
      [](Session& session) {
        return GenerateAll(session, {Ask("Alice was", 1)})[0].text;
      });
  // No session is counted that is not there.
  EXPECT_TRUE(model.Unload().has_value());
}

// Takes nothing from the heap while it listens.
class QuietSink : public Sink {
 public:
  explicit QuietSink(size_t requests) : told_(requests) {
    for (Heard& one : told_) one.ids.reserve(256);
  }
  void OnToken(const TokenEvent& event) override {
    told_[event.request].ids.push_back(event.id);
  }
  void OnEnd(const EndEvent& event) override {
    Heard& one = told_[event.request];
    ++one.ends;
    one.finish = event.finish;
    one.out_of_memory = event.error && IsOutOfMemory(*event.error);
  }
  struct Heard {
    std::vector<int32_t> ids;
    int ends = 0;
    Finish finish = Finish::kError;
    bool out_of_memory = false;
  };
  std::vector<Heard> told_;
};

TEST_P(OutOfMemory, Generate) {
  const Plan plan = ValueOrDie(Plan::Make(OpenDemo(), options()));
  Engine engine = ValueOrDie(Engine::Make({.threads = 2}));
  const Model model = ValueOrDie(engine.Load(plan, {}));
  Walk(
      "encode", [&] { return model.Encode("Alice was beginning"); },
      [](const std::vector<int32_t>& ids) {
        return std::to_string(ids.size());
      });
  // One more than there are slots.
  std::vector<Request> requests = {Ask("Alice was", 6), Ask("The", 4),
                                   Ask("He said", 5)};
  requests[1].stops = {"never to be seen"};
  const auto ids = [](const QuietSink& sink) {
    std::vector<std::vector<int32_t>> all;
    for (const auto& one : sink.told_) all.push_back(one.ids);
    return all;
  };
  QuietSink reference(3);
  int64_t count = 0;
  {
    Session session = ValueOrDie(Session::Make(model, 2));
    const AllocationWatch watch;
    ASSERT_TRUE(session.Generate(requests, reference).has_value());
    count = watch.count();
  }
  int64_t refused = 0;
  int64_t ended = 0;
  const std::vector<int64_t> points = PointsOf(count);
  for (const bool all_after : {false, true}) {
    for (const int64_t point : points) {
      SCOPED_TRACE("allocation " + std::to_string(point) +
                   (all_after ? " and all after it" : ""));
      // A fresh one: it takes what a step reuses when it first runs.
      Session session = ValueOrDie(Session::Make(model, 2));
      QuietSink sink(3);
      std::optional<Result<void>> result;
      {
        const AllocationWatch watch({.first = point, .all_after = all_after});
        result.emplace(session.Generate(requests, sink));
      }
      if (!result->has_value()) {
        ++refused;
        EXPECT_TRUE(IsOutOfMemory(result->error()));
        for (const auto& one : sink.told_) EXPECT_EQ(one.ends, 0);
      } else {
        bool failed = false;
        for (const auto& one : sink.told_) {
          EXPECT_EQ(one.ends, 1);
          EXPECT_EQ(one.out_of_memory, one.finish == Finish::kError);
          failed = failed || one.finish == Finish::kError;
        }
        if (failed) {
          ++ended;
        } else {
          EXPECT_EQ(ids(sink), ids(reference));
        }
      }
      session.Reset();
      QuietSink again(3);
      ASSERT_TRUE(session.Generate(requests, again).has_value());
      EXPECT_EQ(ids(again), ids(reference));
    }
  }
  std::printf(
      "generate   %7ld allocations, %3zu points twice, %3ld refused, %3ld "
      "ended\n",
      static_cast<long>(count), points.size(), static_cast<long>(refused),
      static_cast<long>(ended));
  EXPECT_GT(refused, 0);
  EXPECT_GT(ended, 0);
}

INSTANTIATE_TEST_SUITE_P(Meshes, OutOfMemory,
                         ::testing::Values("single", "ep=2"));

}  // namespace
}  // namespace signet::testing
