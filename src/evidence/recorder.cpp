#include "evidence/recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/overload.h"
#include "evidence/state_map.h"

namespace signet::evidence {
namespace {

size_t RowBytes(const exec::TapBuffer& buffer) {
  return static_cast<size_t>(buffer.shape[1]) * SizeOf(buffer.dtype);
}

const std::byte* RowAt(const exec::TapBuffer& buffer, size_t row) {
  return static_cast<const std::byte*>(buffer.data) + row * RowBytes(buffer);
}

}  // namespace

void Recorder::Begin(const step::SealedProgram* program,
                     const exec::BoundProgram* bound, int64_t position) {
  program_ = program;
  bound_ = bound;
  position_ = position;
  step_ = 0;
  layer_ = kNoLayer;
  combined_ = false;
  own_.clear();
  untouched_.clear();
  record_ = {};
  scores_.clear();
  for (const step::Step& step : program->steps()) {
    const auto* route = std::get_if<step::MoeRoute>(&step);
    if (route != nullptr && route->scores) scores_.insert(*route->scores);
  }
}

void Recorder::OnStep(std::string_view kind, Written written,
                      int64_t live_rows) {
  const step::Step& step = program_->steps()[step_++];
  SIGNET_CHECK(KindName(step) == kind);
  if (const auto layer = LayerBegun(step, *program_, *plan_)) {
    layer_ = layer->value();
    adds_ = 0;
  }
  std::visit(Overload{
                 [&](const step::Projection& s) {
                   if (!scores_.contains(s.out)) return;
                   Record(What::kRouterScores, s.out, written, live_rows);
                 },
                 [&](const step::ResidualAdd& s) {
                   // Sums of addends on their way to a reduction are no
                   // residual.
                   if (!IsWhole(s.out)) return;
                   Record(adds_++ == 0 ? What::kMiddle : What::kResidual, s.out,
                          written, live_rows);
                 },
                 [&](const step::MoeRoute& s) { Route(s, written, live_rows); },
                 [&](const step::MoeScatter& s) { CheckScatter(s, written); },
                 [&](const step::IndexedMoeGemv&) { CheckUntouched(); },
                 [&](const step::MoeCombine&) { combined_ = true; },
                 [&](const step::AllReduce& s) {
                   Meet(s.row);
                   if (!std::exchange(combined_, false)) return;
                   Record(What::kCombine, s.out, written, live_rows);
                 },
                 [&](const step::Gather& s) { Meet(s.row); },
                 [&](const step::Broadcast& s) { Meet(s.row); },
                 [&](const step::BandTransfer& s) { Meet(s.row); },
                 [](const auto&) {},
             },
             step);
  if (step_ < program_->steps().size() &&
      std::holds_alternative<step::IndexedMoeGemv>(program_->steps()[step_])) {
    Watch(step_);
  }
}

const exec::TapBuffer& Recorder::Find(BufferId id, Written written) const {
  const std::string& name = program_->buffers()[id].name;
  const auto found = std::find_if(
      written.begin(), written.end(),
      [&](const exec::TapBuffer& buffer) { return buffer.name == name; });
  SIGNET_CHECK(found != written.end());
  return *found;
}

bool Recorder::IsWhole(BufferId id) const {
  return program_->buffers()[id].part == step::Part::Whole();
}

void Recorder::Record(What what, BufferId id, Written written, int64_t rows) {
  const exec::TapBuffer& buffer = Find(id, written);
  const auto count = static_cast<size_t>(rows * buffer.shape[1]);
  RankRecord::Entry entry{.piece = {.what = what,
                                    .layer = layer_,
                                    .position = position_,
                                    .rows = rows,
                                    .values = {},
                                    .ids = {}},
                          .rows = {}};
  if (buffer.dtype == tensor::DType::kI32) {
    const auto* ids = static_cast<const int32_t*>(buffer.data);
    entry.piece.ids.assign(ids, ids + count);
  } else {
    SIGNET_CHECK(buffer.dtype == tensor::DType::kF32);
    const auto* values = static_cast<const float*>(buffer.data);
    entry.piece.values.assign(values, values + count);
  }
  for (int64_t row = 0; row < rows; ++row) {
    entry.rows.push_back(RowDigest(entry.piece, row));
  }
  if (keep_ == Keep::kDigests) {
    entry.piece.values = {};
    entry.piece.ids = {};
  }
  record_.entries.push_back(std::move(entry));
}

void Recorder::Route(const step::MoeRoute& route, Written written,
                     int64_t rows) {
  Record(What::kRouterIds, route.ids, written, rows);
  Record(What::kRouterWeights, route.weights, written, rows);
  const plan::ExpertView* view = plan_->experts().View(LayerId(layer_), rank_);
  SIGNET_CHECK(view != nullptr);
  const bool owned = (*view)->parallelism == plan::Parallelism::kOwned;
  const auto* ids = static_cast<const int32_t*>(Find(route.ids, written).data);
  own_.assign(static_cast<size_t>(rows * route.top_k), true);
  for (size_t slot = 0; slot < own_.size(); ++slot) {
    const int32_t id = ids[slot];
    if (id < 0 || id >= (*view)->num_experts) {
      Fault("router ids", fmt::format("slot {} has no expert {}", slot, id));
      own_[slot] = false;
    } else if (owned) {
      own_[slot] = view->partition()[static_cast<size_t>(id)].owner == rank_;
    }
  }
  record_.slots[layer_] = std::count(own_.begin(), own_.end(), true);
}

void Recorder::CheckScatter(const step::MoeScatter& scatter, Written written) {
  const exec::TapBuffer& buffer = Find(scatter.inverse_perm, written);
  const auto* rows = static_cast<const int32_t*>(buffer.data);
  int64_t computed = 0;
  for (size_t slot = 0; slot < static_cast<size_t>(buffer.shape[0]); ++slot) {
    const bool own = slot < own_.size() && own_[slot];
    computed += rows[slot] >= 0 ? 1 : 0;
    if ((rows[slot] >= 0) == own) continue;
    Fault("expert slots",
          fmt::format("slot {} is {} but {} computed", slot,
                      own ? "owned" : "foreign", own ? "not" : "is"));
  }
  record_.slots[layer_] = computed;
}

void Recorder::Watch(size_t step) {
  untouched_.clear();
  SIGNET_CHECK(bound_->taps().has_value());
  for (const exec::TapBuffer& buffer : bound_->taps()->points[step].written) {
    Untouched& untouched = untouched_.emplace_back(Untouched{&buffer, {}});
    for (size_t slot = 0; slot < own_.size(); ++slot) {
      if (own_[slot]) continue;
      const std::byte* row = RowAt(buffer, slot);
      untouched.rows.insert(untouched.rows.end(), row, row + RowBytes(buffer));
    }
  }
}

void Recorder::CheckUntouched() {
  for (const Untouched& untouched : untouched_) {
    const size_t row_bytes = RowBytes(*untouched.buffer);
    const std::byte* before = untouched.rows.data();
    for (size_t slot = 0; slot < own_.size(); ++slot) {
      if (own_[slot]) continue;
      if (std::memcmp(before, RowAt(*untouched.buffer, slot), row_bytes) != 0) {
        Fault("expert slots",
              fmt::format("slot {} is foreign but {} has a row of it", slot,
                          untouched.buffer->name));
      }
      before += row_bytes;
    }
  }
  untouched_.clear();
}

void Recorder::Fault(std::string what, std::string message) {
  record_.faults.push_back(
      {std::move(what), layer_, position_,
       fmt::format("rank {}: {}", rank_.value(), message)});
}

}  // namespace signet::evidence
