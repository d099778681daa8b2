#include "support/mesh_state.h"

#include <algorithm>
#include <span>

#include "base/check.h"

namespace signet::testing {
namespace {

using topology::Axis;

class StateReader {
 public:
  StateReader(RunningMesh& mesh, Rank rank) : mesh_(mesh), rank_(rank) {}

  // Rows of one position: [kv_heads, head_dim] of the rank.
  std::span<const float> Page(const plan::StateBuffer& buffer,
                              int64_t position) {
    const int64_t page_tokens = buffer.shape[1];
    const int64_t row = buffer.shape[2] * buffer.shape[3];
    const std::span<const int32_t> table =
        mesh_.executor().programs(rank_).page_table();
    const int64_t page = table[static_cast<size_t>(position / page_tokens)];
    return {Begin(buffer) + (page * page_tokens + position % page_tokens) * row,
            static_cast<size_t>(row)};
  }

  // Of slot 0, rows [first, first + count) of the dimension behind the slots.
  std::span<const float> Rows(const plan::StateBuffer& buffer, int64_t first,
                              int64_t count) {
    int64_t row = 1;
    for (int i = 2; i < buffer.shape.num_dims(); ++i) row *= buffer.shape[i];
    return {Begin(buffer) + first * row, static_cast<size_t>(count * row)};
  }

 private:
  const float* Begin(const plan::StateBuffer& buffer) {
    SIGNET_CHECK(buffer.dtype == tensor::DType::kF32);
    return reinterpret_cast<const float*>(
        mesh_.executor().programs(rank_).arenas().data(buffer.arena) +
        buffer.offset_bytes);
  }
  RunningMesh& mesh_;
  const Rank rank_;
};

}  // namespace

std::map<std::string, std::vector<float>> StateOf(RunningMesh& mesh,
                                                  int64_t ep_coordinate) {
  const plan::ModelPlan& plan = mesh.plan();
  const int64_t length = mesh.state().length(SequenceSlot(0));
  std::map<std::string, std::vector<float>> state;
  const auto append = [&](const std::string& name,
                          std::span<const float> values) {
    std::vector<float>& to = state[name];
    to.insert(to.end(), values.begin(), values.end());
  };
  for (size_t i = 0; i < plan.config().layers.size(); ++i) {
    const LayerId layer(static_cast<int32_t>(i));
    std::vector<Rank> ranks;  // in tp order
    for (int r = 0; r < plan.mesh().num_ranks(); ++r) {
      if (plan.dims(Rank(r)).has_layer(layer) &&
          plan.mesh().Coordinate(Axis::kEp, Rank(r)) == ep_coordinate) {
        ranks.push_back(Rank(r));
      }
    }
    const auto layer_state = [&](Rank rank) -> const plan::LayerState& {
      return plan.state(rank).layers[i];
    };
    const std::string number = std::to_string(i);
    if (layer_state(ranks.front()).k) {
      for (int64_t position = 0; position < length; ++position) {
        for (const Rank rank : ranks) {
          StateReader reader(mesh, rank);
          append("k." + number, reader.Page(*layer_state(rank).k, position));
          append("v." + number, reader.Page(*layer_state(rank).v, position));
        }
      }
      continue;
    }
    for (const Rank rank : ranks) {
      const plan::StateBuffer& buffer = *layer_state(rank).recurrent;
      append("recurrent." + number,
             StateReader(mesh, rank).Rows(buffer, 0, buffer.shape[1]));
    }
    // Channels are blocks of queries, keys and values, each over the ranks.
    for (int block = 0; block < 3; ++block) {
      for (const Rank rank : ranks) {
        const plan::RankDims& dims = plan.dims(rank);
        const int64_t keys =
            dims.linear_key_heads * plan.config().linear_key_dim;
        append("conv." + number,
               StateReader(mesh, rank)
                   .Rows(*layer_state(rank).conv, block * keys,
                         block < 2 ? keys : dims.conv_channels - 2 * keys));
      }
    }
  }
  return state;
}

}  // namespace signet::testing
