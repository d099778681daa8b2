// The demo measured: that every number is of what it says, not how large it is.

#include "evidence/bench.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "evidence/bench_look.h"
#include "evidence/bench_profile.h"
#include "evidence/bench_report.h"
#include "evidence/bench_run.h"
#include "evidence/bench_serve.h"
#include "evidence/build_facts.h"
#include "evidence/verify_testing.h"
#include "signet/engine.h"
#include "signet/session.h"
#include "support/running_model.h"

namespace signet::testing {
namespace {

using evidence::Bench;
using evidence::BenchBinding;
using evidence::BenchReport;
using evidence::BenchRequest;
using evidence::BenchRun;
using evidence::DecodeLook;
using evidence::DecodeResult;
using evidence::DecodeRuns;
using evidence::Part;
using evidence::Profile;
using evidence::RandomPrompts;
using evidence::ReadOf;
using evidence::Sequence;
using evidence::SidePlan;
using evidence::StepsIn;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;

constexpr int64_t kLayers = 8;
constexpr int64_t kTopK = 4;

BenchRequest Request() {
  return {.model = Demo().string(),
          .paths = {},
          .options = {.devices = "cpu"},
          .context = {},
          .prompts = {40, 7},
          .tokens = 6,
          .batches = {2, 1},
          .profile = true,
          .threads = 2,
          .on_phase = {},
          .on_figure = {}};
}

const BenchReport& Measured() {
  static const BenchReport report = ValueOrDie(Bench(Request()));
  return report;
}

TEST(Bench, EveryFigureIsToldWhenItIsMeasured) {
  BenchRequest request = Request();
  request.profile = false;
  std::vector<std::string> figures;
  request.on_figure = [&figures](std::string_view what) {
    figures.emplace_back(what);
  };
  ValueOrDie(Bench(request));
  EXPECT_THAT(figures, ElementsAre(StartsWith("load: "),
                                   StartsWith("prefill, 40 tokens: "),
                                   StartsWith("prefill, 7 tokens: "),
                                   StartsWith("decode, batch 2: "),
                                   StartsWith("decode, batch 1: ")));
}

TEST(Bench, EveryShapeAskedForIsMeasured) {
  const BenchReport& report = Measured();
  EXPECT_EQ(report.context, 40);
  EXPECT_EQ(report.batch, 2);
  EXPECT_GT(report.ceilings.read_bytes_per_second, 1e8);
  EXPECT_GT(report.ceilings.operations_per_second, 1e8);
  EXPECT_EQ(report.ceilings.operations, "fp32");
  EXPECT_EQ(report.ceilings.read_of, ReadOf::kMemory);  // smaller than caches
  EXPECT_GT(report.planning.seconds * 1e3,
            report.planning.sealing.milliseconds);
  EXPECT_GT(report.planning.sealing.milliseconds, 0);
  // A prefill chunk, and buckets of one and two.
  EXPECT_EQ(report.planning.sealing.programs, 3);
  EXPECT_GT(report.planning.sealing.steps, 3 * report.layers);
  ASSERT_TRUE(report.peak_bytes.has_value());
  EXPECT_GE(*report.peak_bytes, report.load.bytes);
  EXPECT_GT(report.load.bytes, 0u);
  EXPECT_GT(report.load.seconds, 0);

  ASSERT_THAT(report.prefill, SizeIs(2));
  EXPECT_EQ(report.prefill[0].tokens, 40);
  EXPECT_EQ(report.prefill[1].tokens, 7);
  for (const evidence::PrefillResult& prefill : report.prefill) {
    EXPECT_GT(prefill.seconds.min, 0);
    EXPECT_LE(prefill.seconds.min, prefill.seconds.median);
    EXPECT_LE(prefill.seconds.median, prefill.seconds.max);
    EXPECT_NEAR(prefill.tokens_per_second.median * prefill.seconds.median,
                static_cast<double>(prefill.tokens), 1e-6);
  }

  ASSERT_THAT(report.decode, SizeIs(2));
  for (const DecodeResult& decode : report.decode) {
    EXPECT_EQ(decode.steps, 5);
    EXPECT_EQ(decode.attended, 32 + 3);
    EXPECT_NEAR(decode.tokens_per_second.median * decode.step_seconds.median,
                static_cast<double>(decode.batch), 1e-6);
    ASSERT_TRUE(decode.experts.has_value());
    EXPECT_EQ(decode.experts->steps, 5);
    EXPECT_TRUE(decode.experts->same_tokens);
    EXPECT_GE(decode.experts->met, kTopK);
    EXPECT_LE(decode.experts->met, static_cast<double>(kTopK * decode.batch));
  }
  // Two tokens meet more than one, which meets what it is routed to.
  EXPECT_GT(report.decode[0].experts->met, 1.2 * kTopK);
  EXPECT_EQ(report.decode[1].experts->met, kTopK);
  EXPECT_THAT(report.decode[1].VoidReason(), IsEmpty());
  EXPECT_GT(report.decode[0].costs.Total().bytes,
            report.decode[1].costs.Total().bytes);
}

TEST(Bench, AProfileSumsUpToItsCall) {
  const BenchReport& report = Measured();
  // CPU programs have no fused launches, so there is no unfused table.
  ASSERT_THAT(report.profiles, SizeIs(2));
  const Profile& decode = report.profiles[0];
  EXPECT_EQ(decode.kind, plan::ShapeKind::kDecode);
  EXPECT_EQ(decode.rows, 2);
  EXPECT_EQ(decode.capacity, 2);
  EXPECT_EQ(decode.calls, 4);  // one of five warms up
  const Profile& prefill = report.profiles[1];
  EXPECT_EQ(prefill.kind, plan::ShapeKind::kPrefill);
  EXPECT_EQ(prefill.rows, 32);  // its first chunk
  EXPECT_EQ(prefill.capacity, 32);
  EXPECT_EQ(prefill.calls, 5);
  for (const Profile& profile : report.profiles) {
    EXPECT_FALSE(profile.unfused);
    EXPECT_GT(profile.served_seconds.value(), 0);
    double seconds = 0;
    std::map<std::string, int64_t> launches;
    for (const evidence::ProfileRow& row : profile.launches) {
      EXPECT_GT(row.seconds, 0) << row.name;
      seconds += row.seconds;
      launches[row.name] = row.launches;
    }
    EXPECT_NEAR(seconds, profile.seconds, 1e-9);
    EXPECT_EQ(launches["moe_route moe.weights"], kLayers);
    EXPECT_EQ(launches["projection u"], 6);
    EXPECT_EQ(launches["attention attended"], 2);
    EXPECT_EQ(launches["logits io.logits"], 1);
  }
}

TEST(Bench, TheRecordNamesDeviceAndBuild) {
  const nlohmann::ordered_json json =
      evidence::BenchJson(Measured(), /*build=*/"b1d");
  EXPECT_EQ(json["signet_bench"], 1);
  EXPECT_EQ(json["build"], "b1d");
  EXPECT_EQ(json["execution_code"],
            evidence::FactsOfThisBuild().execution_code);
  EXPECT_EQ(json["device"]["name"], "cpu:0");
  EXPECT_FALSE(json["device"]["identity"].get<std::string>().empty());
  EXPECT_TRUE(json["device"]["driver"].is_null());
  const std::string text = evidence::BenchText(Measured(), "b1d");
  EXPECT_THAT(text, HasSubstr("build b1d\n"));
  EXPECT_THAT(text, HasSubstr(json["device"]["identity"].get<std::string>()));
}

TEST(Bench, ADenseModelMeetsNoExperts) {
  BenchRequest request = Request();
  request.model = Tiny("dense_r3").string();
  const BenchReport report = ValueOrDie(Bench(request));
  EXPECT_EQ(report.num_experts, 0);
  EXPECT_THAT(report.profiles, SizeIs(2));
  for (const DecodeResult& decode : report.decode) {
    EXPECT_FALSE(decode.experts.has_value());
    EXPECT_THAT(decode.VoidReason(), IsEmpty());
    EXPECT_GT(decode.costs[Part::kDenseMlp].bytes, 0);
  }
  const nlohmann::ordered_json json = evidence::BenchJson(report, "b1d");
  EXPECT_TRUE(json["decode"][0]["experts"].is_null());
  EXPECT_TRUE(json["decode"][0]["void"].is_null());
}

TEST(Bench, AContextThatDoesNotHoldTheShapesIsRefused) {
  BenchRequest request = Request();
  request.context = 37;
  const Result<BenchReport> report = Bench(request);
  ASSERT_FALSE(report.has_value());
  const auto* rejections = std::get_if<Rejections>(&report.error());
  ASSERT_NE(rejections, nullptr);
  EXPECT_TRUE(rejections->Has(RejectionCode::kPlanOptionInvalid));
  EXPECT_EQ(rejections->list().front().want, "at least 40");
}

TEST(BenchServe, PromptsAreOthersEachTimeAndTheSameInEveryRun) {
  RandomPrompts prompts(1000);
  RandomPrompts again(1000);
  std::set<std::vector<int32_t>> seen;
  for (int i = 0; i < 20; ++i) {
    const std::vector<int32_t> prompt = prompts.Next(16);
    EXPECT_TRUE(seen.insert(prompt).second);
    EXPECT_EQ(again.Next(16), prompt);
    for (const int32_t id : prompt) {
      EXPECT_GE(id, 0);
      EXPECT_LT(id, 1000);
    }
  }
}

// A session's run, and the programs to look at it again.
class Looked {
 public:
  explicit Looked(int64_t batch) {
    const PlanOptions options = {
        .devices = "cpu", .context = 64, .batch = batch};
    const Plan plan = ValueOrDie(
        Plan::Make(ValueOrDie(Source::Open(Demo().string(), {})), options));
    Engine engine = ValueOrDie(Engine::Make({.threads = 2}));
    const Model model = ValueOrDie(engine.Load(plan, {}));
    Session session = ValueOrDie(Session::Make(model, batch));
    RandomPrompts prompts(4096);
    runs = ValueOrDie(MeasureDecode(session, prompts, batch, 32, 6, 5));
    const std::vector<evidence::SideSpec> sides =
        ValueOrDie(evidence::ChooseSides({{"single", ""}}, "cpu"));
    side_ = ValueOrDie(evidence::MakeSidePlan(
        OpenManifest(Demo()), sides.front(),
        ValueOrDie(evidence::OptionsOfSides(sides, options)).front(), {}));
    model_ = ValueOrDie(evidence::LoadBenchModel(&side_, 2));
    tapped = Start(BenchBinding::kTapped);
  }
  std::unique_ptr<BenchRun> Start(BenchBinding binding) const {
    return ValueOrDie(BenchRun::Start(model_, binding));
  }
  DecodeLook Look() { return ValueOrDie(LookAtDecode(*tapped, runs.last)); }
  const plan::ModelPlan& plan() const { return *side_.plan; }
  const step::SealedProgram& decode_program() const {
    const std::vector<step::SealedProgram>& programs = side_.programs.front();
    return *std::find_if(programs.begin(), programs.end(), [](const auto& p) {
      return p.shape().kind == plan::ShapeKind::kDecode;
    });
  }

  DecodeRuns runs;

 private:
  SidePlan side_;
  evidence::BenchModel model_;

 public:
  std::unique_ptr<BenchRun> tapped;
};

TEST(BenchLook, ADecodeIsSeenAsItWasServed) {
  Looked looked(3);
  EXPECT_EQ(looked.runs.steps, 5);
  EXPECT_THAT(looked.runs.windows, SizeIs(5));
  ASSERT_THAT(looked.runs.last, SizeIs(3));
  for (const Sequence& sequence : looked.runs.last) {
    EXPECT_THAT(sequence.prompt, SizeIs(32));
    EXPECT_THAT(sequence.drawn, SizeIs(6));
  }
  const DecodeLook look = looked.Look();
  EXPECT_TRUE(look.same_tokens);
  // A second look sees the same.
  EXPECT_EQ(looked.Look().experts, look.experts);
}

TEST(BenchLook, OtherTokensAreNoticed) {
  Looked looked(2);
  int32_t& id = looked.runs.last[1].drawn[2];
  id = (id + 1) % 4096;
  EXPECT_FALSE(looked.Look().same_tokens);
}

TEST(BenchLook, ACallByLaunchComputesWhatItDoesWhole) {
  Looked looked(2);
  looked.tapped.reset();
  const std::unique_ptr<BenchRun> run = looked.Start(BenchBinding::kServed);
  run->set_by_launch(true);
  EXPECT_TRUE(ValueOrDie(LookAtDecode(*run, looked.runs.last)).same_tokens);
}

TEST(BenchLook, ATappedRunIsProfiledUnfused) {
  Looked looked(1);
  const Profile profile =
      ValueOrDie(ProfileDecode(*looked.tapped, looked.runs.last, kTopK));
  EXPECT_TRUE(profile.unfused);
  EXPECT_FALSE(profile.served_seconds.has_value());
  EXPECT_EQ(profile.calls, 4);
  // It still looks afterwards.
  EXPECT_EQ(looked.Look().experts, kTopK);
}

// Two ways to the same sum: by the weights of the manifest, and by what the
// steps of the sealed program refer to.
TEST(BenchLook, TheStepsOfATokenCostWhatTheModelDoes) {
  Looked looked(1);
  const Profile profile =
      ValueOrDie(ProfileDecode(*looked.tapped, looked.runs.last, kTopK));
  evidence::Cost sum;
  for (const evidence::ProfileRow& row : profile.launches) {
    ASSERT_TRUE(row.cost.has_value()) << row.name;
    sum.bytes += row.cost->bytes;
    sum.operations += row.cost->operations;
  }
  const auto sizes =
      evidence::SizesOf(looked.plan().manifest(), tensor::DType::kF32);
  // The last step looked at attends to the prompt and five tokens.
  const evidence::Cost total =
      evidence::DecodeCosts(sizes, 1, 37, kTopK).Total();
  EXPECT_DOUBLE_EQ(sum.bytes, total.bytes);
  EXPECT_DOUBLE_EQ(sum.operations, total.operations);
}

TEST(BenchProfile, ALaunchDoesTheStepsOfItsName) {
  const Looked looked(1);
  const step::SealedProgram& program = looked.decode_program();
  const auto first = [&](std::string_view kind) {
    size_t i = 0;
    while (KindName(program.steps()[i]) != kind) ++i;
    return i;
  };
  const size_t norm = first("norm");
  EXPECT_EQ(StepsIn(program, norm, "norm x"), 1u);
  EXPECT_EQ(StepsIn(program, norm, "norm+projection u"), 2u);
  EXPECT_EQ(StepsIn(program, norm, "norm+projection a"), 5u);
  EXPECT_EQ(StepsIn(program, first("moe_route"),
                    "moe_route+indexed_moe_gemv+moe_activation moe.act"),
            3u);
  EXPECT_EQ(StepsIn(program, first("kv_append"), "kv_append"), 1u);
  EXPECT_EQ(StepsIn(program, program.steps().size() - 1, "sample io.sampled"),
            1u);
  for (const char* name :
       {"norm u", "projection u", "norm+conv u", "norm", "", " "}) {
    EXPECT_EQ(StepsIn(program, norm, name), std::nullopt) << name;
  }
}

}  // namespace
}  // namespace signet::testing
