#include "evidence/state_map.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <iterator>
#include <utility>

#include "base/check.h"

namespace signet::evidence {
namespace {

// A row of one rank's part of a buffer, as floats; bf16 widens exactly.
std::vector<float> Floats(const std::byte* data, int64_t count,
                          tensor::DType dtype) {
  std::vector<float> floats(static_cast<size_t>(count));
  if (dtype == tensor::DType::kF32) {
    std::memcpy(floats.data(), data, 4 * floats.size());
    return floats;
  }
  SIGNET_CHECK(dtype == tensor::DType::kBF16);
  for (size_t i = 0; i < floats.size(); ++i) {
    uint16_t half = 0;
    std::memcpy(&half, data + 2 * i, sizeof half);
    floats[i] = std::bit_cast<float>(static_cast<uint32_t>(half) << 16);
  }
  return floats;
}

void Append(std::vector<float>& to, std::span<const float> from) {
  to.insert(to.end(), from.begin(), from.end());
}

using Member = std::optional<step::BufferDecl> LayerState::*;
using Parts = std::vector<std::vector<float>>;  // one a coordinate

}  // namespace

std::optional<LayerId> LayerBegun(const step::Step& step,
                                  const step::SealedProgram& program,
                                  const plan::ModelPlan& plan) {
  const auto* norm = std::get_if<step::Norm>(&step);
  if (norm == nullptr) return std::nullopt;
  const auto& weight = program.buffers()[norm->weight].weight;
  if (!weight || !weight->weight) return std::nullopt;
  const model::WeightEntry& entry = plan.manifest().weights()[*weight->weight];
  if (entry.role != model::Role::kInputNorm) return std::nullopt;
  return entry.layer;
}

RankState FindState(const step::SealedProgram& program,
                    const plan::ModelPlan& plan) {
  RankState state(plan.config().layers.size());
  LayerState* layer = nullptr;
  for (const step::Step& step : program.steps()) {
    if (const auto begun = LayerBegun(step, program, plan)) {
      layer = &state[static_cast<size_t>(begun->value())];
    }
    if (const auto* append = std::get_if<step::KvAppend>(&step)) {
      layer->k = program.buffers()[append->k_cache];
      layer->v = program.buffers()[append->v_cache];
    } else if (const auto* conv = std::get_if<step::Conv>(&step)) {
      layer->conv = program.buffers()[conv->state];
    } else if (const auto* delta = std::get_if<step::DeltaRule>(&step)) {
      layer->recurrent = program.buffers()[delta->state];
      layer->key_width = delta->key_heads * delta->key_dim;
      layer->value_width = delta->value_heads * delta->value_dim;
    }
  }
  return state;
}

StateGatherer::StateGatherer(
    const plan::ModelPlan& plan,
    const std::vector<const step::SealedProgram*>& programs)
    : plan_(plan) {
  for (const step::SealedProgram* program : programs) {
    ranks_.push_back(FindState(*program, plan));
  }
}

namespace {

// The pieces of one layer.
class LayerGatherer {
 public:
  LayerGatherer(const plan::ModelPlan& plan,
                const std::vector<RankState>& states, size_t layer,
                const std::vector<RankMemory>& memory,
                std::vector<SelfFault>* faults)
      : plan_(plan),
        states_(states),
        layer_(layer),
        memory_(memory),
        faults_(faults),
        holders_(static_cast<size_t>(plan.mesh().size(topology::Axis::kTp))) {
    for (size_t r = 0; r < states.size(); ++r) {
      const Rank rank(static_cast<int32_t>(r));
      if (!StateOf(rank).k && !StateOf(rank).recurrent) continue;
      const int64_t part = plan.mesh().Coordinate(topology::Axis::kTp, rank);
      holders_[static_cast<size_t>(part)].push_back(rank);
    }
    for (const std::vector<Rank>& copies : holders_) {
      SIGNET_CHECK(!copies.empty());
    }
  }

  std::vector<Piece> Gather(int64_t begin, int64_t end) {
    const LayerState& shape = StateOf(holders_[0][0]);
    const model::ModelConfig& config = plan_.config();
    end_ = end;
    if (shape.k) {
      const bool sharded = shape.k->shape[2] != config.num_kv_heads;
      Cache(What::kKeys, &LayerState::k, sharded, begin);
      Cache(What::kValues, &LayerState::v, sharded, begin);
    } else {
      const bool sharded =
          shape.recurrent->shape[1] != config.linear_value_heads;
      Conv(shape, sharded);
      Recurrent(sharded);
    }
    return std::move(pieces_);
  }

 private:
  const LayerState& StateOf(Rank rank) const {
    return states_[static_cast<size_t>(rank.value())][layer_];
  }
  const RankMemory& MemoryOf(Rank rank) const {
    return memory_[static_cast<size_t>(rank.value())];
  }

  // What the first rank of each coordinate holds; its copies must be equal.
  template <typename Read>
  Parts ReadParts(What what, bool sharded, const Read& read) {
    Parts parts;
    for (const std::vector<Rank>& copies : holders_) {
      std::vector<float> part = read(copies.front());
      for (size_t i = 1; i < copies.size(); ++i) {
        Compare(what, part, copies.front(), read(copies[i]), copies[i]);
      }
      // Not sharded: every coordinate is a copy too.
      if (sharded || parts.empty()) {
        parts.push_back(std::move(part));
      } else {
        Compare(what, parts[0], holders_[0][0], part, copies.front());
      }
    }
    return parts;
  }

  void Compare(What what, const std::vector<float>& kept, Rank holder,
               const std::vector<float>& copy, Rank rank) {
    if (copy.size() == kept.size() &&
        std::memcmp(copy.data(), kept.data(), 4 * kept.size()) == 0) {
      return;
    }
    faults_->push_back({std::string(Name(what)), static_cast<int32_t>(layer_),
                        end_ - 1,
                        fmt::format("rank {} does not hold what rank {} does",
                                    rank.value(), holder.value())});
  }

  void Add(What what, int64_t first, std::vector<float> values) {
    pieces_.push_back({.what = what,
                       .layer = static_cast<int32_t>(layer_),
                       .position = first,
                       .rows = end_ - first,
                       .values = std::move(values),
                       .ids = {}});
  }

  void Cache(What what, Member member, bool sharded, int64_t begin) {
    const Parts parts = ReadParts(what, sharded, [&](Rank rank) {
      const step::BufferDecl& buffer = *(StateOf(rank).*member);
      const int64_t page_tokens = buffer.shape[1];
      const int64_t width = buffer.shape[2] * buffer.shape[3];
      const auto row_bytes = static_cast<int64_t>(SizeOf(buffer.dtype)) * width;
      const std::byte* const cache = MemoryOf(rank).At(buffer);
      std::vector<float> rows;
      for (int64_t p = begin; p < end_; ++p) {
        const int64_t page =
            MemoryOf(rank).page_table[static_cast<size_t>(p / page_tokens)];
        Append(rows, Floats(cache + (page * page_tokens + p % page_tokens) *
                                        row_bytes,
                            width, buffer.dtype));
      }
      return rows;
    });
    const auto count = static_cast<size_t>(end_ - begin);
    std::vector<float> rows;
    for (size_t p = 0; p < count; ++p) {
      for (const std::vector<float>& part : parts) {
        const size_t width = part.size() / count;
        Append(rows, std::span(part).subspan(p * width, width));
      }
    }
    Add(what, begin, std::move(rows));
  }

  // State of slot 0, which is the first.
  std::vector<float> Slot(Rank rank, Member member) const {
    const step::BufferDecl& buffer = *(StateOf(rank).*member);
    int64_t size = 1;
    for (int i = 1; i < buffer.shape.num_dims(); ++i) size *= buffer.shape[i];
    return Floats(MemoryOf(rank).At(buffer), size, buffer.dtype);
  }

  void Conv(const LayerState& shape, bool sharded) {
    const Parts parts = ReadParts(What::kConv, sharded, [&](Rank rank) {
      return Slot(rank, &LayerState::conv);
    });
    const int64_t taps = shape.conv->shape[2];
    // q, k and v channels are blocks, each by heads.
    const int64_t sizes[] = {shape.key_width * taps, shape.key_width * taps,
                             shape.value_width * taps};
    std::vector<float> channels;
    size_t first = 0;
    for (const int64_t size : sizes) {
      for (const std::vector<float>& part : parts) {
        Append(channels,
               std::span(part).subspan(first, static_cast<size_t>(size)));
      }
      first += static_cast<size_t>(size);
    }
    Add(What::kConv, end_ - 1, std::move(channels));
  }

  void Recurrent(bool sharded) {
    const Parts parts = ReadParts(What::kRecurrent, sharded, [&](Rank rank) {
      return Slot(rank, &LayerState::recurrent);
    });
    std::vector<float> heads;
    for (const std::vector<float>& part : parts) Append(heads, part);
    Add(What::kRecurrent, end_ - 1, std::move(heads));
  }

  const plan::ModelPlan& plan_;
  const std::vector<RankState>& states_;
  size_t layer_;
  const std::vector<RankMemory>& memory_;
  std::vector<SelfFault>* faults_;
  std::vector<std::vector<Rank>> holders_;  // by coordinate of the shards
  int64_t end_ = 0;
  std::vector<Piece> pieces_;
};

}  // namespace

std::vector<Piece> StateGatherer::Gather(const std::vector<RankMemory>& memory,
                                         int64_t begin, int64_t end,
                                         std::vector<SelfFault>* faults) const {
  std::vector<Piece> pieces;
  for (size_t layer = 0; layer < plan_.config().layers.size(); ++layer) {
    LayerGatherer gatherer(plan_, ranks_, layer, memory, faults);
    std::vector<Piece> more = gatherer.Gather(begin, end);
    pieces.insert(pieces.end(), std::make_move_iterator(more.begin()),
                  std::make_move_iterator(more.end()));
  }
  return pieces;
}

}  // namespace signet::evidence
