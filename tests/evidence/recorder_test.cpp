// What a side finds wrong with itself, made wrong on purpose between the steps
// and their observer, or in the memory of a rank (contract E1, X3, X7).

#include "evidence/recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "evidence/merge.h"
#include "evidence/ranks.h"
#include "evidence/state_map.h"
#include "evidence/verify_testing.h"
#include "store/load_transaction.h"
#include "support/running_model.h"
#include "support/slot_state.h"

namespace signet::testing {
namespace {

evidence::RankMemory MemoryOf(const exec::Arenas& arenas,
                              std::span<const int32_t> page_table) {
  return {.kv = ValueOrDie(arenas.Look(MemoryClass::kKv)),
          .recurrent = ValueOrDie(arenas.Look(MemoryClass::kRecurrent)),
          .page_table = page_table};
}

using evidence::Keep;
using evidence::MakeDevices;
using evidence::Piece;
using evidence::RankRecord;
using evidence::Recorder;
using evidence::SelfFault;
using evidence::StartRanks;
using evidence::What;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Changes what a step wrote before the recorder sees it: `edit` gets the bytes
// themselves.
class Tampering final : public exec::TapObserver {
 public:
  using Edit = std::function<void(const exec::TapBuffer&, void* data)>;
  Tampering(const plan::ModelPlan* plan, Rank rank)
      : recorder(plan, rank, Keep::kValues) {}
  void OnStep(std::string_view kind, std::span<const exec::TapBuffer> written,
              int64_t live_rows) override {
    for (const exec::TapBuffer& buffer : written) {
      if (edit) edit(buffer, const_cast<void*>(buffer.data));
    }
    recorder.OnStep(kind, written, live_rows);
  }
  Recorder recorder;
  Edit edit;
};

// Two ranks that own the experts of a generated checkpoint.
class TwoRanks {
 public:
  TwoRanks()
      : plan_(ValueOrDie(plan::MakeModelPlan(
            OpenManifest(Tiny("moe_fused_nested")), CpuMesh("ep=2"),
            {.context = 64, .prefill_chunks = {8}}))) {
    std::vector<backend::Device*> devices;
    loaders_ = ValueOrDie(MakeDevices(plan_->mesh(), 1));
    for (const auto& loader : loaders_) devices.push_back(loader.get());
    store::LoadTransaction load(plan_, devices);
    ValueOrDie(load.Read({}));
    std::vector<exec::TapObserver*> observers;
    for (int r = 0; r < 2; ++r) {
      programs_.push_back(SealAll(*plan_, Rank(r)));
      ranks_.push_back(std::make_unique<Tampering>(plan_.get(), Rank(r)));
      observers.push_back(ranks_.back().get());
    }
    mesh_ = ValueOrDie(StartRanks(
        *plan_, programs_, ValueOrDie(std::move(load).Commit()), 2, observers));
    state_.emplace(mesh_->MakeSequences(*plan_));
  }

  const plan::ModelPlan& plan() const { return *plan_; }

  /// The records of both ranks after a prompt of five (prefill) or one token.
  std::vector<RankRecord> Run(bool prefill, const Tampering::Edit& edit) {
    const int64_t count = prefill ? 5 : 1;
    const int64_t position = state_->length(SequenceSlot(0));
    state_->Extend(SequenceSlot(0), count);
    std::vector<exec::RowInput> rows;
    for (int32_t i = 0; i < count; ++i) {
      rows.push_back({7 + 3 * i, 0, static_cast<int32_t>(position) + i});
    }
    for (int r = 0; r < 2; ++r) {
      exec::ProgramSet& programs = mesh_->programs(Rank(r));
      const exec::BoundProgram& bound =
          prefill ? programs.Prefill(count) : programs.Decode(count);
      for (const step::SealedProgram& program :
           programs_[static_cast<size_t>(r)]) {
        if (program.shape() == bound.shape()) {
          ranks_[static_cast<size_t>(r)]->recorder.Begin(&program, &bound,
                                                         position);
        }
      }
    }
    ranks_[1]->edit = edit;
    const std::vector<backend::SamplingRow> sampling = {
        {.id_bound = static_cast<int32_t>(plan_->config().vocab)}};
    ValueOrDie(prefill ? mesh_->Prefill(count, rows, sampling)
                       : mesh_->Decode(rows, sampling));
    return {ranks_[0]->recorder.Take(), ranks_[1]->recorder.Take()};
  }

 private:
  std::shared_ptr<const plan::ModelPlan> plan_;
  std::vector<std::unique_ptr<backend::Device>> loaders_;
  std::vector<std::vector<step::SealedProgram>> programs_;
  std::vector<std::unique_ptr<Tampering>> ranks_;
  std::unique_ptr<exec::MeshExecutor> mesh_;
  std::optional<exec::SequenceState> state_;
};

std::vector<std::string> Messages(const std::vector<SelfFault>& faults) {
  std::vector<std::string> messages;
  for (const SelfFault& fault : faults) messages.push_back(fault.message);
  return messages;
}

TEST(Recorder, X3_HonestRanksHaveNoFault) {
  TwoRanks ranks;
  for (const bool prefill : {true, false}) {
    const std::vector<RankRecord> records = ranks.Run(prefill, {});
    EXPECT_THAT(Messages(records[0].faults), IsEmpty());
    EXPECT_THAT(Messages(records[1].faults), IsEmpty());
    for (const auto& [layer, slots] : records[0].slots) {
      EXPECT_EQ(slots + records[1].slots.at(layer), (prefill ? 5 : 1) * 4);
    }
    EXPECT_EQ(records[0].collectives.size(), 4u);
    EXPECT_EQ(records[0].collectives, records[1].collectives);
    // Six things of each of four layers with experts.
    EXPECT_EQ(records[0].entries.size(), 4u * 6u);
  }
}

TEST(Recorder, X3_AScatteredForeignSlotIsFound) {
  TwoRanks ranks;
  const std::vector<RankRecord> records =
      ranks.Run(true, [](const exec::TapBuffer& buffer, void* data) {
        if (buffer.name != "l2.moe.inverse_perm") return;
        auto* rows = static_cast<int32_t*>(data);
        while (*rows >= 0) ++rows;
        *rows = 0;
      });
  EXPECT_THAT(Messages(records[0].faults), IsEmpty());
  ASSERT_EQ(records[1].faults.size(), 1u);
  EXPECT_EQ(records[1].faults[0].layer, 2);
  EXPECT_THAT(records[1].faults[0].message,
              HasSubstr("is foreign but is computed"));
}

TEST(Recorder, X3_AComputedForeignRowIsFound) {
  TwoRanks ranks;
  for (const char* name : {"l1.moe.gate", "l1.moe.up", "l1.moe.d"}) {
    const std::vector<RankRecord> records =
        ranks.Run(false, [&](const exec::TapBuffer& buffer, void* data) {
          if (buffer.name != name) return;
          // A bit of every row, whoever owns it.
          for (int64_t slot = 0; slot < 4; ++slot) {
            auto* row = static_cast<uint32_t*>(data) + slot * buffer.shape[1];
            row[3] ^= 1;
          }
        });
    EXPECT_THAT(Messages(records[0].faults), IsEmpty());
    ASSERT_FALSE(records[1].faults.empty()) << name;
    EXPECT_EQ(records[1].faults.size(),
              static_cast<size_t>(4 - records[1].slots.at(1)));
    EXPECT_EQ(records[1].faults[0].layer, 1);
    EXPECT_THAT(records[1].faults[0].message, HasSubstr(name));
  }
}

TEST(Recorder, E1_OneBitOfAnyTapIsInItsEntry) {
  TwoRanks honest;
  const std::vector<RankRecord> wanted = honest.Run(true, {});
  struct Tap {
    const char* name;
    What what;
  };
  for (const Tap& tap :
       {Tap{"l3.moe.scores", What::kRouterScores},
        Tap{"l3.moe.ids", What::kRouterIds},
        Tap{"l3.moe.weights", What::kRouterWeights},
        Tap{"l3.moe.reduced", What::kCombine}, Tap{"l3.middle", What::kMiddle},
        Tap{"l3.residual", What::kResidual}}) {
    TwoRanks ranks;
    const std::vector<RankRecord> got =
        ranks.Run(true, [&](const exec::TapBuffer& buffer, void* data) {
          if (buffer.name != tap.name) return;
          // Row 3, first element, lowest bit.
          *(static_cast<uint32_t*>(data) + 3 * buffer.shape[1]) ^= 1;
        });
    // The first entry that is another is the one tampered with, in its row.
    ASSERT_EQ(got[1].entries.size(), wanted[1].entries.size());
    for (size_t i = 0; i < wanted[1].entries.size(); ++i) {
      const RankRecord::Entry& a = wanted[1].entries[i];
      const RankRecord::Entry& b = got[1].entries[i];
      if (a.rows == b.rows) continue;
      EXPECT_EQ(b.piece.what, tap.what) << tap.name;
      EXPECT_EQ(b.piece.layer, 3) << tap.name;
      for (size_t row = 0; row < 5; ++row) {
        EXPECT_EQ(a.rows[row] != b.rows[row], row == 3) << tap.name;
      }
      break;
    }
    EXPECT_EQ(got[0].entries[0].rows, wanted[0].entries[0].rows);
  }
}

// What both ranks saw of five rows, and their record after an edit of it.
class Merging {
 public:
  std::vector<SelfFault> Faults(
      const std::function<void(std::vector<RankRecord>&)>& edit) const {
    std::vector<RankRecord> records = records_;
    edit(records);
    evidence::CallRecord record{
        .position = 0, .rows = 5, .pieces = {}, .faults = {}, .rank_slots = {}};
    evidence::MergeTaps(ranks_.plan(), std::move(records), &record);
    EXPECT_EQ(record.pieces.size(), 4u * 6u);
    return record.faults;
  }

 private:
  TwoRanks ranks_;
  std::vector<RankRecord> records_ = ranks_.Run(true, {});
};

TEST(MergeTaps, E1_RanksThatShouldAgreeMust) {
  const Merging merging;
  EXPECT_THAT(Messages(merging.Faults([](auto&) {})), IsEmpty());
  for (size_t i = 0; i < 24; ++i) {
    Piece piece{.what = What::kToken, .values = {}, .ids = {}};
    const auto faults = merging.Faults([&](auto& records) {
      piece = records[1].entries[i].piece;
      records[1].entries[i].rows[2] = Digest(1, 2);
    });
    ASSERT_EQ(faults.size(), 1u);
    EXPECT_EQ(faults[0].what, Name(piece.what));
    EXPECT_EQ(faults[0].layer, piece.layer);
    EXPECT_EQ(faults[0].position, 2);
  }
}

TEST(MergeTaps, X3_EverySlotIsComputedOnce) {
  const Merging merging;
  for (const int64_t more : {-1, 1}) {
    const auto faults =
        merging.Faults([&](auto& records) { records[1].slots.at(2) += more; });
    ASSERT_EQ(faults.size(), 1u);
    EXPECT_EQ(faults[0].layer, 2);
    EXPECT_THAT(faults[0].message, HasSubstr("slots of 20"));
  }
}

TEST(MergeTaps, E1_EveryCollectiveIsMetInOrder) {
  const Merging merging;
  const auto told =
      [&](const std::function<void(std::vector<ScheduleRow>&)>& edit) {
        const auto faults = merging.Faults(
            [&](auto& records) { edit(records[1].collectives); });
        return faults.size() == 1 && faults[0].what == "collectives";
      };
  EXPECT_TRUE(told([](auto& rows) { rows.pop_back(); }));
  EXPECT_TRUE(told([](auto& rows) { rows.push_back(rows[0]); }));
  EXPECT_TRUE(told([](auto& rows) { std::swap(rows[1], rows[2]); }));
}

TEST(MergeOutputs, X7_EveryRankHasTheSameToken) {
  const std::vector<float> logits = {1, 2, 3, 4, 5, 6};
  const std::vector<int32_t> drawn = {2, 2};
  const auto faults = [&](const std::vector<float>& others,
                          const std::vector<int32_t>& other_drawn) {
    evidence::CallRecord record{
        .position = 7, .rows = 4, .pieces = {}, .faults = {}, .rank_slots = {}};
    // The first has no logits, as ranks of an earlier stage.
    evidence::MergeOutputs({{nullptr, drawn.data()},
                            {logits.data(), drawn.data()},
                            {others.data(), other_drawn.data()},
                            {nullptr, nullptr}},
                           2, 3, &record);
    EXPECT_EQ(record.next_token(), 2);
    EXPECT_EQ(record.pieces[0].position, 9);
    EXPECT_EQ(record.pieces[0].values, logits);
    return record.faults;
  };
  EXPECT_THAT(Messages(faults(logits, drawn)), IsEmpty());
  ASSERT_EQ(faults(logits, {2, 1}).size(), 1u);
  EXPECT_EQ(faults(logits, {2, 1})[0].what, "token");
  EXPECT_EQ(faults(logits, {2, 1})[0].position, 10);
  ASSERT_EQ(faults({1, 2, 3, 4, 5, 7}, drawn).size(), 1u);
  EXPECT_EQ(faults({1, 2, 3, 4, 5, 7}, drawn)[0].what, "logits");
}

// The gatherer against another reading of the same memory.
TEST(StateGatherer, E1_StateIsReadThroughPages) {
  RunningModel model(
      Tiny("moe_awkward"),
      {.context = 32, .batch = 2, .page_tokens = 4, .prefill_chunks = {8}},
      nullptr);
  // The neighbour holds the first pages.
  model.Prefill(SequenceSlot(1), {9, 8, 7, 6, 5});
  model.Prefill(SequenceSlot(0), {1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
  const std::vector<step::SealedProgram> programs = SealAll(model.plan());
  const evidence::StateGatherer gatherer(model.plan(), {&programs[0]});
  const auto gather = [&](std::vector<SelfFault>* faults) {
    return gatherer.Gather(
        {MemoryOf(model.programs().arenas(), model.programs().page_table())}, 0,
        10, faults);
  };
  std::vector<SelfFault> faults;
  const std::vector<Piece> pieces = gather(&faults);
  const auto wanted = SlotState(model, SequenceSlot(0));
  ASSERT_EQ(pieces.size(), wanted.size());
  for (const Piece& piece : pieces) {
    const char* kind = piece.what == What::kKeys     ? "k"
                       : piece.what == What::kValues ? "v"
                       : piece.what == What::kConv   ? "conv"
                                                     : "recurrent";
    const auto& tensor =
        wanted.at(std::string(kind) + "." + std::to_string(piece.layer));
    ASSERT_EQ(piece.values.size(), tensor.data.size());
    for (size_t i = 0; i < tensor.data.size(); ++i) {
      ASSERT_EQ(piece.values[i], tensor.data[i]) << kind << piece.layer;
    }
  }
  EXPECT_THAT(Messages(faults), IsEmpty());

  // One bit of one byte of the sequence's memory, and one of its neighbour's.
  std::optional<plan::StateBuffer> found;
  for (const auto& layer : model.plan().state(Rank(0)).layers) {
    if (layer.k && !found) found = layer.k;
  }
  ASSERT_TRUE(found.has_value());
  const plan::StateBuffer& keys = *found;
  std::byte* const cache =
      model.programs().arenas().data(keys.arena) + keys.offset_bytes;
  const int64_t row_bytes = 4 * keys.shape[2] * keys.shape[3];
  const auto page_of = [&](int64_t slot, int64_t position) {
    return model.programs().page_table()[static_cast<size_t>(
        slot * model.plan().pool().pages_per_slot + position / 4)];
  };
  cache[(page_of(0, 6) * 4 + 6 % 4) * row_bytes] ^= std::byte{1};
  cache[(page_of(1, 2) * 4 + 2) * row_bytes] ^= std::byte{1};
  const std::vector<Piece> changed = gather(&faults);
  for (size_t i = 0; i < pieces.size(); ++i) {
    for (int64_t row = 0; row < pieces[i].rows; ++row) {
      const bool hit =
          pieces[i].what == What::kKeys && pieces[i].rows == 10 && row == 6 &&
          &pieces[i] ==
              &*std::find_if(pieces.begin(), pieces.end(), [](const Piece& p) {
                return p.what == What::kKeys;
              });
      EXPECT_EQ(RowDigest(pieces[i], row) != RowDigest(changed[i], row), hit);
    }
  }
}

TEST(StateGatherer, E1_CopiesOnOtherRanksMustBeEqual) {
  const auto plan = ValueOrDie(plan::MakeModelPlan(
      OpenManifest(Tiny("moe_top1")), CpuMesh("ep=2"), {.context = 16}));
  const std::vector<step::SealedProgram> first = SealAll(*plan, Rank(0));
  const std::vector<step::SealedProgram> second = SealAll(*plan, Rank(1));
  const evidence::StateGatherer gatherer(*plan, {&first[0], &second[0]});
  const auto device = std::move(ValueOrDie(MakeDevices(plan->mesh(), 1))[0]);
  exec::Arenas a =
      ValueOrDie(exec::Arenas::Make(device.get(), first[0].arena_bytes(), 1));
  exec::Arenas b =
      ValueOrDie(exec::Arenas::Make(device.get(), first[0].arena_bytes(), 1));
  const std::vector<int32_t> pages(
      static_cast<size_t>(plan->pool().pages_per_slot), 0);
  const auto faults = [&] {
    std::vector<SelfFault> found;
    gatherer.Gather({MemoryOf(a, pages), MemoryOf(b, pages)}, 0, 3, &found);
    return found;
  };
  EXPECT_THAT(Messages(faults()), IsEmpty());
  *b.data(MemoryClass::kRecurrent) = std::byte{1};
  ASSERT_EQ(faults().size(), 1u);
  EXPECT_EQ(faults()[0].layer, 0);
  EXPECT_THAT(faults()[0].message,
              HasSubstr("rank 1 does not hold what rank 0 does"));
}

}  // namespace
}  // namespace signet::testing
