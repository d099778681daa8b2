// S3 on meshes of several ranks. Each test breaks one thing in a draft that is
// right, and expects one code.

#include <gtest/gtest.h>

#include <functional>

#include "step/draft_testing.h"
#include "step/rules/rules.h"

namespace signet::step::rules {
namespace {

using plan::Parallelism;
using step::testing::CodesOf;
using step::testing::DraftBuilder;
using step::testing::MakeMesh;
using step::testing::Nth;
using topology::Axis;
using Codes = std::set<RejectionCode>;

Codes Check(const ProgramDraft& draft, std::string_view mesh_text = "tp=2",
            Parallelism parallelism = Parallelism::kSingle,
            Axis axis = Axis::kEp) {
  const topology::Mesh mesh = MakeMesh(mesh_text);
  Findings findings;
  CheckDataflow(
      draft, {.mesh = &mesh, .parallelism = parallelism, .expert_axis = axis},
      findings);
  return CodesOf(std::move(findings));
}

BufferDecl& Buffer(ProgramDraft& draft, std::string_view name) {
  for (BufferDecl& buffer : draft.buffers) {
    if (buffer.name == name) return buffer;
  }
  std::abort();
}
BufferId IdOf(const ProgramDraft& draft, std::string_view name) {
  for (size_t i = 0; i < draft.buffers.size(); ++i) {
    const BufferId id(static_cast<int32_t>(i));
    if (draft.buffers[id].name == name) return id;
  }
  std::abort();
}

// A tensor-parallel feed-forward part: rows of the weight make shards, columns
// make addends, the reduction makes the sum whole.
ProgramDraft TensorParallelMlp() {
  DraftBuilder b;
  const Part shard = Part::Shard(Axis::kTp);
  const BufferId x = b.Input("x");
  const BufferId gate = b.Work("gate", shard);
  const BufferId up = b.Work("up", shard);
  const BufferId act = b.Work("act", shard);
  const BufferId down = b.Work("down", Part::Partial(Axis::kTp));
  const BufferId sum = b.Work("sum");
  const BufferId out = b.Output("out");
  b.Add(Projection{.x = x, .weight = b.Weight("w.gate", shard), .out = gate});
  b.Add(Projection{.x = x, .weight = b.Weight("w.up", shard), .out = up});
  b.Add(Activation{.gate = gate, .up = up, .out = act});
  b.Add(Projection{.x = act, .weight = b.Weight("w.down", shard), .out = down});
  b.Add(AllReduce{.x = down, .out = sum, .group = {.axis = Axis::kTp}});
  b.Add(ResidualAdd{.residual = x, .addend = sum, .out = out});
  return b.draft;
}

struct Edit {
  const char* name;
  std::function<void(ProgramDraft&)> apply;
  Codes codes;
};

class TensorParallel : public ::testing::TestWithParam<Edit> {};

TEST(Dataflow, S3_TensorParallelMlpIsRight) {
  EXPECT_EQ(Check(TensorParallelMlp()), Codes{});
}

TEST_P(TensorParallel, IsRefused) {
  ProgramDraft draft = TensorParallelMlp();
  GetParam().apply(draft);
  EXPECT_EQ(Check(draft), GetParam().codes);
}

INSTANTIATE_TEST_SUITE_P(
    Dataflow, TensorParallel,
    ::testing::Values(
        Edit{"S3_ReadBeforeWrite",
             [](ProgramDraft& d) { std::swap(d.steps[1], d.steps[2]); },
             {RejectionCode::kReadBeforeWrite}},
        Edit{"S3_StepReadsItsOwnResult",
             [](ProgramDraft& d) {
               Nth<Activation>(d).gate = Nth<Activation>(d).out;
             },
             {RejectionCode::kReadBeforeWrite}},
        Edit{"S3_NeverWritten",
             [](ProgramDraft& d) { d.buffers.Push({.name = "idle"}); },
             {RejectionCode::kReadBeforeWrite}},
        Edit{"S3_WrittenTwice",
             [](ProgramDraft& d) {
               d.steps.insert(d.steps.begin(), d.steps[0]);
             },
             {RejectionCode::kWrittenTwice}},
        Edit{"S3_InputWritten",
             [](ProgramDraft& d) {
               Nth<ResidualAdd>(d).out = IdOf(d, "x");
               Buffer(d, "out").kind = BufferKind::kState;
             },
             {RejectionCode::kWrittenTwice}},
        Edit{"S3_PartialUnreduced",
             [](ProgramDraft& d) {
               Nth<ResidualAdd>(d).addend = IdOf(d, "down");
             },
             {RejectionCode::kPartialUnreduced}},
        Edit{"S3_PartialNeverReduced",
             [](ProgramDraft& d) {
               Nth<ResidualAdd>(d).addend = IdOf(d, "x");
               d.steps.erase(d.steps.begin() + 4);
               Buffer(d, "sum").kind = BufferKind::kState;
             },
             {RejectionCode::kPartialUnreduced}},
        Edit{"S3_PartialDeclaredWhole",
             [](ProgramDraft& d) { Buffer(d, "down").part = Part::Whole(); },
             {RejectionCode::kPartialUnreduced}},
        Edit{"S3_PartialIntoProduct",
             [](ProgramDraft& d) {
               Nth<Projection>(d, 1).x = IdOf(d, "down");
               std::swap(d.steps[1], d.steps[3]);
               Nth<Projection>(d, 1).x = IdOf(d, "gate");
               Nth<Activation>(d).up = IdOf(d, "gate");
             },
             {RejectionCode::kPartialUnreduced}},
        Edit{"S3_ReducedOverAnotherAxis",
             [](ProgramDraft& d) { Nth<AllReduce>(d).group.axis = Axis::kEp; },
             {RejectionCode::kPartialUnreduced}},
        Edit{"S3_PartialReducedTwice",
             [](ProgramDraft& d) {
               AllReduce again = Nth<AllReduce>(d);
               again.out = d.buffers.Push({.name = "again"});
               d.steps.emplace_back(again);
             },
             {RejectionCode::kPartialReducedTwice}},
        Edit{"S3_SumReducedAgain",
             [](ProgramDraft& d) {
               AllReduce again = Nth<AllReduce>(d);
               again.x = again.out;
               again.out = d.buffers.Push({.name = "again"});
               d.steps.emplace_back(again);
             },
             {RejectionCode::kPartialReducedTwice}},
        Edit{"S3_PartialInSumAndReduction",
             [](ProgramDraft& d) {
               const BufferId down = IdOf(d, "down");
               const BufferId twice = d.buffers.Push(
                   {.name = "twice", .part = Part::Partial(Axis::kTp)});
               d.steps.insert(
                   d.steps.begin() + 4,
                   ResidualAdd{.residual = down, .addend = down, .out = twice});
               Nth<AllReduce>(d).x = twice;
             },
             {RejectionCode::kPartialReducedTwice}},
        Edit{"S3_WholeReduced",
             [](ProgramDraft& d) {
               Nth<AllReduce>(d).x = IdOf(d, "x");
               Nth<ResidualAdd>(d).residual = IdOf(d, "sum");
               Buffer(d, "down").part = Part::Whole();
               Nth<Projection>(d, 2).x = IdOf(d, "x");
               Nth<Projection>(d, 2).weight =
                   d.buffers.Push({.name = "w", .kind = BufferKind::kWeight});
             },
             {RejectionCode::kWholeInReducedRange}},
        Edit{"S3_WholeInReducedRange",
             [](ProgramDraft& d) {
               // The residual is added before the reduction, not after it.
               Nth<ResidualAdd>(d).addend = IdOf(d, "down");
               Nth<ResidualAdd>(d).out = IdOf(d, "sum");
               Buffer(d, "sum").part = Part::Partial(Axis::kTp);
               Nth<AllReduce>(d).x = IdOf(d, "sum");
               Nth<AllReduce>(d).out = IdOf(d, "out");
               std::swap(d.steps[4], d.steps[5]);
             },
             {RejectionCode::kWholeInReducedRange}},
        Edit{"S3_ShardIntoNorm",
             [](ProgramDraft& d) {
               d.steps.emplace_back(
                   Norm{.x = IdOf(d, "act"),
                        .weight = d.buffers.Push(
                            {.name = "w", .kind = BufferKind::kWeight}),
                        .out = d.buffers.Push({.name = "normed"})});
             },
             {RejectionCode::kShardMisread}},
        Edit{"S3_ShardIntoWholeWeight",
             [](ProgramDraft& d) { Buffer(d, "w.down").part = Part::Whole(); },
             {RejectionCode::kShardMisread}},
        Edit{"S3_ShardOfAnotherAxis",
             [](ProgramDraft& d) {
               Buffer(d, "w.down").part = Part::Shard(Axis::kEp);
             },
             {RejectionCode::kShardMisread}},
        Edit{"S3_ShardsOfTwoAxes",
             [](ProgramDraft& d) {
               Buffer(d, "w.up").part = Part::Shard(Axis::kEp);
               Buffer(d, "up").part = Part::Shard(Axis::kEp);
             },
             {RejectionCode::kShardMisread}},
        Edit{"S3_ShardDeclaredWhole",
             [](ProgramDraft& d) { Buffer(d, "act").part = Part::Whole(); },
             {RejectionCode::kShardMisread}},
        Edit{"S3_ShardReduced",
             [](ProgramDraft& d) {
               Nth<AllReduce>(d).x = IdOf(d, "act");
               Nth<ResidualAdd>(d).residual = IdOf(d, "sum");
               Buffer(d, "w.down").part = Part::Whole();
               Buffer(d, "down").part = Part::Whole();
               Nth<Projection>(d, 2).x = IdOf(d, "x");
             },
             {RejectionCode::kShardMisread}},
        Edit{"S3_ShardAdded",
             [](ProgramDraft& d) {
               Nth<ResidualAdd>(d).residual = IdOf(d, "act");
             },
             {RejectionCode::kShardMisread}},
        Edit{"S3_OutputIsAShard",
             [](ProgramDraft& d) {
               Nth<ResidualAdd>(d).out = d.buffers.Push({.name = "spare"});
               Nth<Activation>(d).out = IdOf(d, "out");
               Nth<Projection>(d, 2).x = IdOf(d, "out");
               Buffer(d, "out").part = Part::Shard(Axis::kTp);
               Buffer(d, "act").kind = BufferKind::kState;
             },
             {RejectionCode::kShardMisread}}),
    [](const ::testing::TestParamInfo<Edit>& edit) {
      return std::string(edit.param.name);
    });

TEST(Dataflow, S3_PartialsOfOneAxisMayBeAdded) {
  ProgramDraft draft = TensorParallelMlp();
  const BufferId other =
      draft.buffers.Push({.name = "other", .part = Part::Partial(Axis::kTp)});
  const BufferId both =
      draft.buffers.Push({.name = "both", .part = Part::Partial(Axis::kTp)});
  Projection second = Nth<Projection>(draft, 2);
  second.out = other;
  draft.steps.insert(draft.steps.begin() + 4, second);
  draft.steps.insert(
      draft.steps.begin() + 5,
      ResidualAdd{
          .residual = IdOf(draft, "down"), .addend = other, .out = both});
  Nth<AllReduce>(draft).x = both;
  EXPECT_EQ(Check(draft), Codes{});
}

TEST(Dataflow, S3_PartialsOfTwoAxesMayNotBeAdded) {
  DraftBuilder b;
  const BufferId x = b.Input("x");
  const Part tp = Part::Shard(Axis::kTp);
  const Part ep = Part::Shard(Axis::kEp);
  const BufferId a = b.Work("a", tp);
  const BufferId c = b.Work("c", ep);
  const BufferId p = b.Work("p", Part::Partial(Axis::kTp));
  const BufferId q = b.Work("q", Part::Partial(Axis::kEp));
  const BufferId sum = b.Work("sum", Part::Partial(Axis::kTp));
  const BufferId out = b.Output("out");
  b.Add(Projection{.x = x, .weight = b.Weight("w0", tp), .out = a});
  b.Add(Projection{.x = x, .weight = b.Weight("w1", ep), .out = c});
  b.Add(Projection{.x = a, .weight = b.Weight("w2", tp), .out = p});
  b.Add(Projection{.x = c, .weight = b.Weight("w3", ep), .out = q});
  b.Add(ResidualAdd{.residual = p, .addend = q, .out = sum});
  b.Add(AllReduce{.x = sum, .out = out, .group = {.axis = Axis::kTp}});
  EXPECT_EQ(Check(b.draft, "tp=2,ep=2"),
            Codes{RejectionCode::kPartialUnreduced});
}

TEST(Dataflow, S3_GatherMakesAShardWhole) {
  DraftBuilder b;
  const Part shard = Part::Shard(Axis::kTp);
  const BufferId x = b.Input("x");
  const BufferId part = b.Work("part", shard);
  const BufferId out = b.Output("out");
  b.Add(Logits{.x = x, .weight = b.Weight("head", shard), .out = part});
  b.Add(Gather{.x = part, .out = out, .group = {.axis = Axis::kTp}});
  EXPECT_EQ(Check(b.draft), Codes{});
  ProgramDraft other_axis = b.draft;
  Nth<Gather>(other_axis).group.axis = Axis::kEp;
  EXPECT_EQ(Check(other_axis), Codes{RejectionCode::kShardMisread});
  ProgramDraft ungathered = b.draft;
  Nth<Logits>(ungathered).out = out;
  ungathered.steps.pop_back();
  Buffer(ungathered, "part").kind = BufferKind::kState;
  EXPECT_EQ(Check(ungathered), Codes{RejectionCode::kShardMisread});
}

TEST(Dataflow, S3_BroadcastAndBandTransferMakeWhole) {
  DraftBuilder b;
  const BufferId x = b.Input("x");
  const BufferId mid = b.Work("mid");
  const BufferId out = b.Output("out");
  b.Add(Broadcast{.x = x, .out = mid, .group = {.axis = Axis::kTp}});
  b.Add(BandTransfer{.x = mid, .out = out, .group = {.axis = Axis::kPp}});
  EXPECT_EQ(Check(b.draft), Codes{});
  Buffer(b.draft, "mid").part = Part::Partial(Axis::kTp);
  EXPECT_EQ(Check(b.draft), Codes{RejectionCode::kWholeInReducedRange});
}

// Heads of a rank through both mixers.
ProgramDraft ShardedMixers() {
  DraftBuilder b;
  const Part heads = Part::Shard(Axis::kTp);
  const BufferId slot = b.Input("slot", IoRole::kSlot);
  const BufferId position = b.Input("position", IoRole::kPosition);
  const BufferId pages = b.Input("pages", IoRole::kPageTable);
  const BufferId x = b.Input("x");
  const auto project = [&](const char* name) {
    const BufferId out = b.Work(name, heads);
    b.Add(Projection{.x = x,
                     .weight = b.Weight(std::string("w.") + name, heads),
                     .out = out});
    return out;
  };
  const BufferId q_gate = project("q_gate");
  const BufferId k = project("k");
  const BufferId v = project("v");
  const BufferId q_out = b.Work("q_out", heads);
  const BufferId k_out = b.Work("k_out", heads);
  b.Add(QkNormRope{.q_gate = q_gate,
                   .k = k,
                   .q_norm = b.Weight("w.q_norm"),
                   .k_norm = b.Weight("w.k_norm"),
                   .inv_freq = b.Weight("inv_freq"),
                   .position = position,
                   .q_out = q_out,
                   .k_out = k_out});
  const BufferId k_cache = b.State("k_cache", heads);
  const BufferId v_cache = b.State("v_cache", heads);
  b.Add(KvAppend{.k = k_out,
                 .v = v,
                 .slot = slot,
                 .position = position,
                 .page_table = pages,
                 .k_cache = k_cache,
                 .v_cache = v_cache});
  b.Add(Attention{.q = q_out,
                  .q_gate = q_gate,
                  .k_cache = k_cache,
                  .v_cache = v_cache,
                  .slot = slot,
                  .position = position,
                  .page_table = pages,
                  .out = b.Work("attended", heads)});
  const BufferId conv = b.Work("conv", heads);
  b.Add(Conv{.u = project("u"),
             .weight = b.Weight("w.conv", heads),
             .slot = slot,
             .position = position,
             .state = b.State("conv_state", heads),
             .out = conv});
  const BufferId beta = project("b");
  const BufferId decay = project("a");
  const BufferId o = b.Work("o", heads);
  b.Add(DeltaRule{.qkv = conv,
                  .b = beta,
                  .a = decay,
                  .a_log = b.Weight("w.a_log", heads),
                  .dt_bias = b.Weight("w.dt_bias", heads),
                  .slot = slot,
                  .position = position,
                  .state = b.State("delta_state", heads),
                  .scratch = b.Work("scratch", heads),
                  .out = o});
  const BufferId z = project("z");
  b.Add(GatedNorm{.o = o,
                  .z = z,
                  .weight = b.Weight("w.norm"),
                  .out = b.Work("normed", heads)});
  return b.draft;
}

TEST(Dataflow, S3_MixersKeepTheHeadsOfARank) {
  EXPECT_EQ(Check(ShardedMixers()), Codes{});
  // Each of these alone declared whole is refused.
  for (const char* name :
       {"k", "v", "k_cache", "v_cache", "attended", "w.conv", "conv_state",
        "conv", "b", "a", "w.a_log", "w.dt_bias", "delta_state", "scratch", "o",
        "z", "normed", "q_out", "k_out"}) {
    ProgramDraft draft = ShardedMixers();
    Buffer(draft, name).part = Part::Whole();
    EXPECT_EQ(Check(draft), Codes{RejectionCode::kShardMisread}) << name;
  }
  // Each of these alone declared a shard is refused.
  for (const char* name : {"w.q_norm", "w.k_norm", "inv_freq", "w.norm", "slot",
                           "position", "pages"}) {
    ProgramDraft draft = ShardedMixers();
    Buffer(draft, name).part = Part::Shard(Axis::kTp);
    EXPECT_EQ(Check(draft), Codes{RejectionCode::kShardMisread}) << name;
  }
}

TEST(Dataflow, S3_StateIsReadAfterItsOneUpdate) {
  ProgramDraft early = ShardedMixers();
  const auto at = [](const ProgramDraft& d, std::string_view kind) {
    for (size_t i = 0; i < d.steps.size(); ++i) {
      if (KindName(d.steps[i]) == kind) return i;
    }
    std::abort();
  };
  std::swap(early.steps[at(early, "kv_append")],
            early.steps[at(early, "attention")]);
  EXPECT_EQ(Check(early), Codes{RejectionCode::kReadBeforeWrite});
  ProgramDraft twice = ShardedMixers();
  const Step append = twice.steps[at(twice, "kv_append")];
  twice.steps.push_back(append);
  EXPECT_EQ(Check(twice), Codes{RejectionCode::kWrittenTwice});
  ProgramDraft work = ShardedMixers();
  Buffer(work, "conv_state").kind = BufferKind::kWork;
  EXPECT_EQ(Check(work), Codes{RejectionCode::kWrittenTwice});
  ProgramDraft written = ShardedMixers();
  Nth<Attention>(written).out = IdOf(written, "v_cache");
  Buffer(written, "attended").kind = BufferKind::kState;
  EXPECT_EQ(Check(written), Codes{RejectionCode::kWrittenTwice});
}

// A grouped block whose experts are spread as `parallelism` says.
ProgramDraft GroupedBlock(Parallelism parallelism, Axis axis) {
  DraftBuilder b;
  const bool owned = parallelism == Parallelism::kOwned;
  const bool split = parallelism == Parallelism::kSplit;
  const Part share = owned || split ? Part::Shard(axis) : Part::Whole();
  const Part slots = owned ? Part::Shard(axis) : Part::Whole();
  const Part partial = Part::Partial(axis);
  const BufferId x = b.Input("x");
  const BufferId ids = b.Work("ids");
  const BufferId weights = b.Work("weights");
  const BufferId flag = b.Declare({.name = "flag",
                                   .kind = BufferKind::kFlag,
                                   .shape = {1},
                                   .arena = MemoryClass::kIo,
                                   .io = IoRole::kFlags});
  b.Add(MoeRoute{.scores = x, .ids = ids, .weights = weights, .flag = flag});
  const BufferId gate_up = b.Weight("gate_up", share);
  const BufferId down = b.Weight("down", share);
  const MoeScatter scatter =
      b.Add(MoeScatter{.experts = gate_up,
                       .ids = ids,
                       .counts = b.Work("counts", slots),
                       .offsets = b.Work("offsets", slots),
                       .sorted_slot = b.Work("sorted_slot", slots),
                       .tile_expert = b.Work("tile_expert", slots),
                       .inverse_perm = b.Work("inverse_perm", slots)});
  const BufferId y = b.Work("y", share);
  b.Add(GroupedMoeGemm{.experts = gate_up,
                       .sorted_slot = scatter.sorted_slot,
                       .tile_expert = scatter.tile_expert,
                       .x = x,
                       .y = y});
  const BufferId gate = b.Work("gate", share);
  const BufferId up = b.Work("up", share);
  b.Add(MoeGateUpUnscatter{
      .sorted_slot = scatter.sorted_slot, .y = y, .gate = gate, .up = up});
  const BufferId act = b.Work("act", share);
  b.Add(MoeActivation{.gate = gate, .up = up, .out = act});
  const BufferId d = b.Work("d", split ? partial : share);
  b.Add(GroupedMoeGemm{.experts = down,
                       .sorted_slot = scatter.sorted_slot,
                       .tile_expert = scatter.tile_expert,
                       .x = act,
                       .y = d,
                       .which = ExpertPart::kDown});
  const BufferId sum = b.Work("sum", partial);
  b.Add(MoeCombine{.experts = down,
                   .d = d,
                   .ids = ids,
                   .weights = weights,
                   .inverse_perm = scatter.inverse_perm,
                   .out = sum});
  b.Add(AllReduce{.x = sum, .out = b.Output("out"), .group = {.axis = axis}});
  return b.draft;
}

TEST(Dataflow, S3_RoutedBlocksOfEverySpread) {
  for (const auto [parallelism, axis] :
       {std::pair(Parallelism::kSingle, Axis::kEp),
        std::pair(Parallelism::kOwned, Axis::kEp),
        std::pair(Parallelism::kSplit, Axis::kTp)}) {
    const ProgramDraft right = GroupedBlock(parallelism, axis);
    EXPECT_EQ(Check(right, "tp=2,ep=2", parallelism, axis), Codes{});
    for (size_t i = 0; i < right.buffers.size(); ++i) {
      for (const Part part : {Part::Whole(), Part::Partial(axis),
                              Part::Shard(axis), Part::Shard(Axis::kPp)}) {
        ProgramDraft draft = right;
        BufferDecl& buffer = draft.buffers[BufferId(static_cast<int32_t>(i))];
        if (buffer.part == part) continue;
        buffer.part = part;
        EXPECT_NE(Check(draft, "tp=2,ep=2", parallelism, axis), Codes{})
            << buffer.name << " as " << ToString(part);
      }
    }
  }
}

TEST(Dataflow, S3_CombineMakesAddendsOnTheMeshOfOneToo) {
  ProgramDraft draft = GroupedBlock(Parallelism::kSingle, Axis::kEp);
  EXPECT_EQ(Check(draft, "single"), Codes{});
  Buffer(draft, "sum").part = Part::Whole();
  EXPECT_EQ(Check(draft, "single"), Codes{RejectionCode::kPartialUnreduced});
}

}  // namespace
}  // namespace signet::step::rules
