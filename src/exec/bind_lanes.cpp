// Which launches of a program touch the same memory.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "exec/binder.h"
#include "exec/lanes.h"
#include "step/operands.h"

namespace signet::exec {
namespace {

// Bytes of an arena that a launch touches.
struct Touch {
  MemoryClass arena;
  uint64_t begin;
  uint64_t end;
  bool writes;
};

bool Clash(const Touch& a, const Touch& b) {
  return a.arena == b.arena && (a.writes || b.writes) && a.begin < b.end &&
         b.begin < a.end;
}

// Whether ranks meet there: in the order of their programs.
bool Meets(const step::Step& step) {
  return std::visit(
      [](const auto& s) {
        if constexpr (requires { s.group.ranks; }) {
          return s.group.ranks.size() > 1;
        } else {
          return false;
        }
      },
      step);
}

}  // namespace

std::vector<LanePlace> Binder::PlacesOf(
    std::span<const size_t> step_counts) const {
  if (arenas_.device()->side_lane(program_.shape().rows) == nullptr) return {};
  struct Launched {
    std::vector<Touch> touches;
    bool meets = false;
  };
  std::vector<Launched> launches;
  size_t first = 0;
  for (const size_t count : step_counts) {
    Launched& launched = launches.emplace_back();
    for (const step::Step& step : program_.steps().subspan(first, count)) {
      launched.meets = launched.meets || Meets(step);
      step::ForEachOperand(
          step, [&](std::string_view, BufferId id, step::Access access) {
            const step::BufferDecl& buffer = Decl(id);
            if (IsOfWeights(buffer.arena)) return;
            launched.touches.push_back(
                {.arena = buffer.arena,
                 .begin = buffer.offset_bytes,
                 .end = buffer.offset_bytes + buffer.size.value(),
                 .writes = access != step::Access::kRead});
          });
    }
    first += count;
  }
  return PlaceInLanes(launches.size(), [&](size_t later, size_t earlier) {
    const Launched& a = launches[later];
    const Launched& b = launches[earlier];
    if (a.meets || b.meets) return true;
    return std::any_of(
        a.touches.begin(), a.touches.end(), [&](const Touch& touch) {
          return std::any_of(
              b.touches.begin(), b.touches.end(),
              [&](const Touch& other) { return Clash(touch, other); });
        });
  });
}

}  // namespace signet::exec
