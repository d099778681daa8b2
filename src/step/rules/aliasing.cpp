// S5: no two buffers share a byte while both live, but for an in-place pair of
// the step that ends the one and begins the other. A sweep over time: the live
// ranges of an arena are disjoint, so a new one is compared with its neighbours
// alone, O(n log n).

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "step/operands.h"
#include "step/rules/lifetimes.h"
#include "step/rules/location.h"
#include "step/rules/rules.h"

namespace signet::step::rules {
namespace {

struct LiveRange {
  uint64_t end;
  BufferId id;
};

// The live ranges of one arena by their first byte.
using LiveRanges = std::map<uint64_t, LiveRange>;

class AliasRules {
 public:
  AliasRules(const ProgramDraft& draft, const model::Manifest* manifest,
             Findings& findings)
      : draft_(draft),
        manifest_(manifest),
        findings_(findings),
        lifetimes_(LifetimesOf(draft)) {}

  void Run() {
    const size_t num_times = draft_.steps.size() + 1;
    std::vector<std::vector<BufferId>> starts(num_times);
    std::vector<std::vector<BufferId>> stops(num_times);
    for (size_t i = 0; i < draft_.buffers.size(); ++i) {
      const BufferId id(static_cast<int32_t>(i));
      const Lifetime& life = lifetimes_[id];
      // Mapped files have no place in an arena and are never written.
      if (life.first > life.last ||
          draft_.buffers[id].arena == MemoryClass::kMapped) {
        continue;
      }
      starts[static_cast<size_t>(life.first)].push_back(id);
      stops[static_cast<size_t>(life.last)].push_back(id);
    }
    for (size_t time = 0; time < num_times; ++time) {
      for (const BufferId id : starts[time]) Insert(id, time);
      for (const BufferId id : stops[time]) Remove(id);
    }
  }

 private:
  LiveRanges& RangesOf(const BufferDecl& buffer) {
    return live_[{buffer.rank, buffer.arena}];
  }

  void Insert(BufferId id, size_t time) {
    const BufferDecl& buffer = draft_.buffers[id];
    LiveRanges& ranges = RangesOf(buffer);
    const uint64_t begin = buffer.offset_bytes;
    const uint64_t end = begin + buffer.size.value();  // S4: no overflow
    auto neighbour = ranges.upper_bound(begin);
    if (neighbour != ranges.begin()) --neighbour;
    for (; neighbour != ranges.end() && neighbour->first < end; ++neighbour) {
      if (neighbour->second.end <= begin) continue;
      const BufferId other = neighbour->second.id;
      if (SamePlace(other, id)) {
        if (IsInPlace(other, id, time)) {
          neighbour->second.id = id;
          return;
        }
        if (IsAlias(other, id)) return;
      }
      Refuse(other, id);
      return;  // ranges stay disjoint
    }
    ranges.emplace(begin, LiveRange{end, id});
  }

  void Remove(BufferId id) {
    LiveRanges& ranges = RangesOf(draft_.buffers[id]);
    const auto range = ranges.find(draft_.buffers[id].offset_bytes);
    if (range != ranges.end() && range->second.id == id) ranges.erase(range);
  }

  bool SamePlace(BufferId a, BufferId b) const {
    return draft_.buffers[a].offset_bytes == draft_.buffers[b].offset_bytes &&
           draft_.buffers[a].size == draft_.buffers[b].size;
  }

  // `ends` is last read, in place, by the step that first writes `begins`.
  bool IsInPlace(BufferId ends, BufferId begins, size_t time) const {
    if (time >= draft_.steps.size()) return false;
    const auto pair = InPlace(draft_.steps[time]);
    return pair && pair->source == ends && pair->target == begins &&
           lifetimes_[ends].first < static_cast<int64_t>(time) &&
           lifetimes_[ends].last == static_cast<int64_t>(time);
  }

  // Two names of one weight, which nothing writes.
  bool IsAlias(BufferId a, BufferId b) const {
    const BufferDecl& first = draft_.buffers[a];
    const BufferDecl& second = draft_.buffers[b];
    if (manifest_ == nullptr || first.kind != BufferKind::kWeight ||
        second.kind != BufferKind::kWeight) {
      return false;
    }
    return Owner(first) == Owner(second);
  }
  WeightId Owner(const BufferDecl& buffer) const {
    const WeightId weight = *buffer.weight->weight;
    return manifest_->weights()[weight].alias_of.value_or(weight);
  }

  std::string Spell(BufferId id) const {
    const BufferDecl& buffer = draft_.buffers[id];
    const Lifetime& life = lifetimes_[id];
    return buffer.name + " [" + std::to_string(buffer.offset_bytes) + ", " +
           std::to_string(buffer.offset_bytes + buffer.size.value()) +
           ") in steps " + std::to_string(life.first) + " ... " +
           std::to_string(life.last);
  }
  void Refuse(BufferId first, BufferId second) {
    findings_.Add(RejectionCode::kBuffersOverlap,
                  std::string(Name(draft_.buffers[second].arena)),
                  "two buffers share bytes while both live",
                  Spell(first) + " and " + Spell(second));
  }

  const ProgramDraft& draft_;
  const model::Manifest* manifest_;
  Findings& findings_;
  const IdVector<BufferId, Lifetime> lifetimes_;
  std::map<std::pair<Rank, MemoryClass>, LiveRanges> live_;
};

}  // namespace

void CheckAliasing(const ProgramDraft& draft, const model::Manifest* manifest,
                   Findings& findings) {
  AliasRules(draft, manifest, findings).Run();
}

}  // namespace signet::step::rules
