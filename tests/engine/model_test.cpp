// Plans and models through the public API: what is refused, what a plan says,
// and the life of a loaded model.

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdint>
#include <fstream>
#include <string>

#include "engine/demo_engine.h"

namespace signet::testing {
namespace {

TEST(Model, UnloadIsRefusedWhileSessionsLiveAndIdempotentAfter) {
  Model model = LoadDemo({.context = 64});
  {
    Session session = ValueOrDie(Session::Make(model, 1));
    EXPECT_TRUE(Fails(model.Unload(), FailureKind::kState));
    EXPECT_EQ(GenerateAll(session, {Ask("It", 2)})[0].tokens, 2);
  }
  EXPECT_TRUE(model.Unload().has_value());
  EXPECT_TRUE(model.Unload().has_value());
  EXPECT_TRUE(Fails(Session::Make(model, 1), FailureKind::kState));
}

TEST(Model, TwoModelsOfOneEngineAnswerIndependently) {
  Engine engine = ValueOrDie(Engine::Make({.threads = 2}));
  Model first = ValueOrDie(engine.Load(DemoPlan({.context = 64}), {}));
  const Model second = ValueOrDie(engine.Load(DemoPlan({.context = 128}), {}));
  Session session = ValueOrDie(Session::Make(second, 1));
  const std::vector<int32_t> before =
      GenerateAll(session, {Ask("It was", 8)})[0].ids;
  ASSERT_TRUE(first.Unload().has_value());
  EXPECT_EQ(GenerateAll(session, {Ask("It was", 8)})[0].ids, before);
}

TEST(Model, ProgressReachesTheTotal) {
  Engine engine = ValueOrDie(Engine::Make({.threads = 1}));
  LoadProgress last{0, 1};
  ValueOrDie(engine.Load(DemoPlan({}), [&](const LoadProgress& progress) {
    EXPECT_GE(progress.done_bytes, last.done_bytes);
    last = progress;
  }));
  EXPECT_EQ(last.done_bytes, last.total_bytes);
  EXPECT_GT(last.total_bytes, 1u << 20);
}

// The value of a line of /proc/self/status.
uint64_t OwnDataBytes() {
  std::ifstream status("/proc/self/status");
  std::string word;
  uint64_t kilobytes = 0;
  while (status >> word && word != "VmData:") continue;
  status >> kilobytes;
  return kilobytes * 1024;
}

TEST(Model, MemoryThatWentAfterThePlanIsRefusedBeforeAWeightIsRead) {
  Engine engine = ValueOrDie(Engine::Make({.threads = 1}));
  // Half a gigabyte of keys and values.
  const Plan plan =
      DemoPlan({.devices = "cpu", .batch = 64, .decode_buckets = {64}});
  ASSERT_TRUE(plan.Admission().has_value());
  int calls = 0;
  const auto count = [&](const LoadProgress&) { ++calls; };

  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_DATA, &before), 0);
  const rlimit half = {OwnDataBytes() + (uint64_t{256} << 20), before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_DATA, &half), 0);
  const Result<Model> refused = engine.Load(plan, count);
  setrlimit(RLIMIT_DATA, &before);
  EXPECT_TRUE(Refuses(refused, RejectionCode::kMemoryShort));
  EXPECT_EQ(calls, 0);
  EXPECT_TRUE(engine.Load(plan, count).has_value());
  EXPECT_GT(calls, 0);
}

TEST(Model, SessionSlotsAreWithinTheBatch) {
  const Model model = LoadDemo({.context = 64, .batch = 2});
  EXPECT_TRUE(Refuses(Session::Make(model, 0), RejectionCode::kRequestInvalid));
  EXPECT_TRUE(Refuses(Session::Make(model, 3), RejectionCode::kRequestInvalid));
  EXPECT_TRUE(Session::Make(model, 2).has_value());
}

TEST(Plan, P6_TheContractFollowsFromWhatIsPlannedAlone) {
  const std::string id = DemoPlan({}).contract_id();
  EXPECT_EQ(DemoPlan({}).contract_id(), id);
  EXPECT_EQ(DemoPlan({.devices = "cpu:0"}).contract_id(), id);
  EXPECT_NE(DemoPlan({.context = 100}).contract_id(), id);
  EXPECT_NE(DemoPlan({.batch = 2}).contract_id(), id);
  EXPECT_NE(DemoPlan({.kv = KvType::kBF16}).contract_id(), id);
  EXPECT_NE(DemoPlan({.page_tokens = 16}).contract_id(), id);
  EXPECT_NE(DemoPlan({.prefill_chunks = {64}}).contract_id(), id);
  EXPECT_NE(DemoPlan({.all_logits = true}).contract_id(), id);
}

TEST(Plan, RefusesWhatItCannotServeByName) {
  const Source source = ValueOrDie(Source::Open(DemoFolder(), {}));
  const auto refused = [&](const PlanOptions& options, RejectionCode code) {
    return Refuses(Plan::Make(source, options), code);
  };
  EXPECT_TRUE(refused({.mesh = "ep=0"}, RejectionCode::kMeshUnparsable));
  EXPECT_TRUE(refused({.mesh = "tp=3"}, RejectionCode::kMeshUnsupported));
  EXPECT_TRUE(refused({.mesh = "tp=2,ep=2"}, RejectionCode::kMeshUnsupported));
  EXPECT_TRUE(refused({.mesh = "ep=2,ep=2"}, RejectionCode::kMeshAxisRepeated));
  EXPECT_TRUE(refused({.devices = "tpu"}, RejectionCode::kDevicesInvalid));
  EXPECT_TRUE(refused({.devices = "cpu:x"}, RejectionCode::kDevicesInvalid));
  EXPECT_TRUE(refused({.devices = "cpu,"}, RejectionCode::kDevicesInvalid));
  EXPECT_TRUE(
      refused({.devices = "cpu:0,cpu:1"}, RejectionCode::kDevicesInvalid));
  EXPECT_TRUE(refused({.devices = "gpu"}, RejectionCode::kDeviceUnavailable));
  EXPECT_TRUE(refused({.context = 0}, RejectionCode::kPlanOptionInvalid));
  EXPECT_TRUE(refused({.context = 1 << 30}, RejectionCode::kPlanOptionInvalid));
  EXPECT_TRUE(refused({.batch = 0}, RejectionCode::kPlanOptionInvalid));
  EXPECT_TRUE(refused({.page_tokens = 0}, RejectionCode::kPlanOptionInvalid));
  EXPECT_TRUE(refused({.batch = 4, .decode_buckets = {1, 2}},
                      RejectionCode::kShapeListInvalid));
  EXPECT_TRUE(
      refused({.prefill_chunks = {64, 7}}, RejectionCode::kShapeListInvalid));
}

TEST(Plan, P4_AShortageIsToldWithThePlan) {
  const Plan plan = DemoPlan({.context = 4096, .batch = 4096});
  EXPECT_TRUE(Refuses(plan.Admission(), RejectionCode::kMemoryShort));
  EXPECT_NE(ValueOrDie(plan.Text()).find("contract "), std::string::npos);
  Engine engine = ValueOrDie(Engine::Make({.threads = 1}));
  EXPECT_TRUE(Refuses(engine.Load(plan, {}), RejectionCode::kMemoryShort));
}

TEST(Plan, G5_ListsItsShapesAndPrintsTheirPrograms) {
  const Plan plan = DemoPlan({.context = 256, .batch = 3});
  const std::string program =
      ValueOrDie(plan.ProgramText(0, ShapeKind::kDecode, 3));
  EXPECT_NE(program.find("moe_combine"), std::string::npos);
  EXPECT_TRUE(Refuses(plan.ProgramText(1, ShapeKind::kDecode, 1),
                      RejectionCode::kPlanOptionInvalid));
  EXPECT_TRUE(Refuses(plan.ProgramText(0, ShapeKind::kDecode, 4),
                      RejectionCode::kPlanOptionInvalid));
}

}  // namespace
}  // namespace signet::testing
