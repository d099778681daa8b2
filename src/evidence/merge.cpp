#include "evidence/merge.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "base/check.h"

namespace signet::evidence {
namespace {

// X3: over owners the slots add up; elsewhere every rank computes all.
void CheckSlots(const plan::ModelPlan& plan,
                const std::vector<RankRecord>& ranks, CallRecord* record) {
  record->rank_slots.assign(ranks.size(), 0);
  const int64_t wanted = record->rows * plan.config().top_k;
  for (size_t r = 0; r < ranks.size(); ++r) {
    const Rank rank(static_cast<int32_t>(r));
    for (const auto& [layer, slots] : ranks[r].slots) {
      record->rank_slots[r] += slots;
      const plan::ExpertView& view = *plan.experts().View(LayerId(layer), rank);
      int64_t sum = slots;
      if (view->parallelism == plan::Parallelism::kOwned) {
        const std::vector<Rank> group = plan.mesh().Group(view->axis, rank);
        if (group.front() != rank) continue;
        sum = 0;
        for (const Rank member : group) {
          const auto& theirs = ranks[static_cast<size_t>(member.value())].slots;
          const auto found = theirs.find(layer);
          if (found != theirs.end()) sum += found->second;
        }
      }
      if (sum == wanted) continue;
      record->faults.push_back(
          {"expert slots", layer, record->position,
           fmt::format("rank {} and its group computed {} slots of {}", r, sum,
                       wanted)});
    }
  }
}

void CheckCollectives(const plan::ModelPlan& plan,
                      const std::vector<RankRecord>& ranks,
                      CallRecord* record) {
  const plan::Schedule& schedule = plan.schedule();
  for (size_t r = 0; r < ranks.size(); ++r) {
    const plan::RankDims& dims = plan.dims(Rank(static_cast<int32_t>(r)));
    std::vector<ScheduleRow> wanted;
    for (size_t i = 0; i < schedule.rows().size(); ++i) {
      const ScheduleRow row(static_cast<int32_t>(i));
      if (schedule.Concerns(row, dims)) wanted.push_back(row);
    }
    if (ranks[r].collectives == wanted) continue;
    record->faults.push_back(
        {"collectives", kNoLayer, record->position,
         fmt::format("rank {} met {} collectives, which are not the {} of its "
                     "schedule in order",
                     r, ranks[r].collectives.size(), wanted.size())});
  }
  record->collectives = static_cast<int64_t>(schedule.rows().size());
}

}  // namespace

void MergeTaps(const plan::ModelPlan& plan, std::vector<RankRecord> ranks,
               CallRecord* record) {
  CheckSlots(plan, ranks, record);
  CheckCollectives(plan, ranks, record);
  struct Kept {
    std::vector<Digest> rows;
    size_t rank;
  };
  std::map<std::pair<int32_t, What>, Kept> kept;
  for (size_t r = 0; r < ranks.size(); ++r) {
    for (SelfFault& fault : ranks[r].faults) {
      record->faults.push_back(std::move(fault));
    }
    for (RankRecord::Entry& entry : ranks[r].entries) {
      Piece& piece = entry.piece;
      const auto [place, is_first] =
          kept.try_emplace({piece.layer, piece.what}, Kept{entry.rows, r});
      if (is_first) {
        record->pieces.push_back(std::move(piece));
        continue;
      }
      const std::vector<Digest>& rows = place->second.rows;
      const auto differs = std::mismatch(rows.begin(), rows.end(),
                                         entry.rows.begin(), entry.rows.end());
      if (differs.first == rows.end()) continue;
      record->faults.push_back(
          {std::string(Name(piece.what)), piece.layer,
           record->position + (differs.first - rows.begin()),
           fmt::format("rank {} does not have that of rank {}", r,
                       place->second.rank)});
    }
  }
}

void MergeOutputs(const std::vector<RankOutputs>& ranks, int64_t rows,
                  int64_t vocab, CallRecord* record) {
  const auto count = static_cast<size_t>(rows);
  Piece logits{.what = What::kLogits, .values = {}, .ids = {}};
  Piece token{.what = What::kToken, .values = {}, .ids = {}};
  logits.rows = token.rows = rows;
  logits.position = token.position = record->last_position() - rows + 1;
  std::optional<size_t> sampler;
  for (size_t r = 0; r < ranks.size() && !sampler; ++r) {
    if (ranks[r].logits != nullptr && ranks[r].sampled != nullptr) sampler = r;
  }
  SIGNET_CHECK(sampler.has_value());
  const RankOutputs& first = ranks[*sampler];
  logits.values.assign(first.logits,
                       first.logits + count * static_cast<size_t>(vocab));
  token.ids.assign(first.sampled, first.sampled + count);
  const auto differ = [&](What what, size_t rank) {
    record->faults.push_back(
        {std::string(Name(what)), kNoLayer, record->last_position(),
         fmt::format("rank {} does not have that of rank {}", rank, *sampler)});
  };
  for (size_t r = 0; r < ranks.size(); ++r) {
    if (ranks[r].logits != nullptr &&
        std::memcmp(ranks[r].logits, logits.values.data(),
                    4 * logits.values.size()) != 0) {
      differ(What::kLogits, r);
    }
    if (ranks[r].sampled != nullptr &&
        !std::equal(token.ids.begin(), token.ids.end(), ranks[r].sampled)) {
      differ(What::kToken, r);
    }
  }
  record->pieces.push_back(std::move(logits));
  record->pieces.push_back(std::move(token));
}

}  // namespace signet::evidence
