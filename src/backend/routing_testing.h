#pragma once
// Routings for the tests of every backend: the degenerate kinds, and the
// numbers of a rank's part. Only tests include this.

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace signet::backend::testing {

/// One int32 an expert: its local number on a rank, -1 if it is foreign.
inline std::vector<int32_t> OwnedRange(int64_t num_experts, int64_t begin,
                                       int64_t end) {
  std::vector<int32_t> map(static_cast<size_t>(num_experts), -1);
  for (int64_t e = begin; e < end; ++e) {
    map[static_cast<size_t>(e)] = static_cast<int32_t>(e - begin);
  }
  return map;
}

/// The capacity of the grouped order (contract P5).
inline int64_t GroupedCapacity(int64_t num_slots, int64_t num_local,
                               int64_t tile_rows) {
  const int64_t n = std::min(num_local, num_slots);
  return tile_rows * ((num_slots + n * (tile_rows - 1)) / tile_rows);
}

struct Routing {
  std::string name;
  int64_t live = 0;
  int64_t top_k = 0;
  std::vector<int32_t> ids;  // [live * top_k]
};

/// A routing whose slot s goes to expert id_of(s).
template <typename IdOf>
Routing RoutingOf(std::string name, int64_t live, int64_t top_k, IdOf id_of) {
  Routing routing = {std::move(name), live, top_k, {}};
  for (int64_t s = 0; s < live * top_k; ++s) {
    routing.ids.push_back(static_cast<int32_t>(id_of(s)));
  }
  return routing;
}

/// Over `num_experts` >= 4 experts.
inline std::vector<Routing> DegenerateRoutings(int64_t num_experts) {
  std::vector<Routing> all;
  const auto add = [&](std::string name, int64_t live, int64_t top_k,
                       auto id_of) {
    all.push_back(RoutingOf(std::move(name), live, top_k, id_of));
  };
  add("no live rows", 0, 3, [](int64_t) { return 0; });
  add("all to one", 137, 1, [](int64_t) { return 2; });
  add("one expert empty", 40, 1,
      [&](int64_t s) { return s % (num_experts - 1) + 1; });
  add("one token each", num_experts, 1, [](int64_t s) { return s; });
  add("top-k is E", 5, num_experts,
      [&](int64_t s) { return (s / num_experts + s) % num_experts; });
  add("singletons and one heavy", 150, 1,
      [&](int64_t s) { return s < num_experts - 1 ? s : num_experts - 1; });
  add("fewer slots than experts", 2, 1, [](int64_t s) { return 3 * s; });
  add("absent rows among others", 12, 2,
      [&](int64_t s) { return s / 2 % 3 == 1 ? -1 : s % num_experts; });
  add("all absent", 4, 2, [](int64_t) { return -1; });
  return all;
}

}  // namespace signet::backend::testing
