// S2 of the routed block: every shape follows from the owner view (E, K, I and
// the experts of this rank), B and the tile height.

#include <limits>

#include "step/rules/types.h"

namespace signet::step::rules {

const plan::ExpertView& TypeRules::view() const {
  return *plan_.experts().View(block().layer, draft_.rank);
}

std::optional<int64_t> TypeRules::GroupedRows(int64_t tile_rows) const {
  if (tile_rows < 1) return std::nullopt;
  const Bytes rows = plan::GroupedRowsBound(
      plan::MaxSlots(view().facts(), rows_), view()->num_local, tile_rows);
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  if (rows.value() > static_cast<uint64_t>(kMax)) return std::nullopt;
  return static_cast<int64_t>(rows.value());
}

int64_t TypeRules::BlockTileRows() const {
  return std::get<MoeScatter>(draft_.steps[*block().scatter]).tile_rows;
}

void TypeRules::operator()(const MoeRoute& s) {
  const Shape routes = {rows_, view()->top_k};
  if (s.scores) {
    Rows("scores", *s.scores, view()->num_experts);
    Need("scores", *s.scores, OfLayer(Value::kScores));
  }
  if (s.in_ids) {
    Io("in_ids", *s.in_ids, IoRole::kRouteIds, DType::kI32, routes);
  }
  if (s.in_weights) {
    Io("in_weights", *s.in_weights, IoRole::kRouteWeights, DType::kF32, routes);
  }
  Type("ids", s.ids, DType::kI32, routes);
  Type("weights", s.weights, DType::kF32, routes);
  Io("flag", s.flag, IoRole::kFlags, DType::kI32, {1});
  Attribute("num_experts", s.num_experts, view()->num_experts);
  Attribute("top_k", s.top_k, view()->top_k);
  Attribute("renormalise", s.renormalise, int64_t{view()->renormalise});
  Give(s.ids, OfLayer(Value::kRouteIds));
  Give(s.weights, OfLayer(Value::kRouteWeights));
}

void TypeRules::operator()(const IndexedMoeGemv& s) {
  if (s.which == ExpertPart::kGateUp) {
    const Shape rows = {slots(), view()->local_width};
    Rows("x", s.x, view()->hidden, view()->gate_up_basis);
    Need("x", s.x, OfLayer(Value::kMlpInput));
    Type("out", s.out, DType::kF32, rows);
    Type("up", *s.up, DType::kF32, rows);
    Give(*s.up, OfLayer(Value::kExpertRows));
  } else {
    Type("x", s.x, DType::kF32, {slots(), view()->local_width},
         view()->down_basis);
    Type("out", s.out, DType::kF32, {slots(), view()->hidden});
  }
  Give(s.out, OfLayer(Value::kExpertRows));
}

void TypeRules::operator()(const MoeScatter& s) {
  Type("counts", s.counts, DType::kI32, {view()->num_local});
  Type("offsets", s.offsets, DType::kI32, {view()->num_local + 1});
  Type("inverse_perm", s.inverse_perm, DType::kI32, {slots()});
  if (const auto rows = GroupedRows(s.tile_rows)) {
    Type("sorted_slot", s.sorted_slot, DType::kI32, {*rows});
    Type("tile_expert", s.tile_expert, DType::kI32, {*rows / s.tile_rows});
  } else {
    // The nearest height that bounds the rows.
    Attribute("tile_rows", s.tile_rows, int64_t{1});
  }
  for (const BufferId id :
       {s.counts, s.offsets, s.sorted_slot, s.tile_expert, s.inverse_perm}) {
    Give(id, OfLayer(Value::kExpertRows));
  }
}

void TypeRules::operator()(const GroupedMoeGemm& s) {
  const int64_t tile_rows = BlockTileRows();
  Attribute("tile_rows", s.tile_rows, tile_rows);
  const bool gate_up = s.which == ExpertPart::kGateUp;
  if (gate_up) {
    Inputs("x", s.x, rows_, view()->hidden, view()->gate_up_basis);
    Need("x", s.x, OfLayer(Value::kMlpInput));
  } else {
    Inputs("x", s.x, slots(), view()->local_width, view()->down_basis);
  }
  if (const auto rows = GroupedRows(tile_rows)) {
    const int64_t width = gate_up ? 2 * view()->local_width : view()->hidden;
    Type("y", s.y, DType::kF32, {*rows, width});
  }
  Give(s.y, OfLayer(Value::kExpertRows));
}

void TypeRules::operator()(const MoeGateUpUnscatter& s) {
  const Shape rows = {slots(), view()->local_width};
  Type("gate", s.gate, DType::kF32, rows);
  Type("up", s.up, DType::kF32, rows);
  Give(s.gate, OfLayer(Value::kExpertRows));
  Give(s.up, OfLayer(Value::kExpertRows));
}

void TypeRules::operator()(const MoeActivation& s) {
  Inputs("out", s.out, slots(), view()->local_width, view()->down_basis);
  Give(s.out, OfLayer(Value::kExpertRows));
}

void TypeRules::operator()(const MoeCombine& s) {
  Rows("out", s.out, view()->hidden);
  Attribute("lanes", s.lanes, view()->lanes);
  Attribute("first_lane", s.first_lane, view()->first_lane);
  Attribute("num_lanes", s.num_lanes, view()->num_lanes);
  Give(s.out, OfLayer(Value::kRouted));
}

}  // namespace signet::step::rules
