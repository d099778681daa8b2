#include "plan/memory_plan.h"

#include <fmt/format.h>

#include <algorithm>

namespace signet::plan {
namespace {

Bytes Total(const ClassBytes& classes) {
  Bytes total;
  for (const auto& [memory_class, bytes] : classes) total += bytes;
  return total;
}

// The spelling of the classes that count, for the refusal.
std::string Breakdown(const ClassBytes& classes) {
  std::string text;
  for (const auto& [memory_class, bytes] : classes) {
    if (bytes == Bytes(0)) continue;
    if (!text.empty()) text += ", ";
    text += fmt::format("{} {}", Name(memory_class), HumanBytes(bytes));
  }
  return text;
}

}  // namespace

Bytes RankMemory::LoadTotal() const { return Total(load); }
Bytes RankMemory::SteadyTotal() const { return Total(steady); }
Bytes RankMemory::Peak() const { return std::max(LoadTotal(), SteadyTotal()); }

MemoryPlan PlanMemory(const ModelPlan& plan,
                      const std::vector<ClassBytes>& arenas) {
  MemoryPlan memory;
  for (const ClassBytes& rank_arenas : arenas) {
    RankMemory& rank = memory.ranks.emplace_back();
    const Rank r(static_cast<int32_t>(memory.ranks.size()) - 1);
    if (plan.mesh().device(r).is_gpu()) {
      rank.load[MemoryClass::kDriver] = kDriverAllowance;
    } else {
      rank.load[MemoryClass::kMapped] = plan.manifest().language_bytes();
    }
    const auto own = [&rank](MemoryClass memory_class, Bytes bytes) {
      if (bytes > Bytes(0)) rank.load[memory_class] = bytes;
    };
    own(MemoryClass::kExperts, plan.experts().OwnExpertBytes(r));
    own(MemoryClass::kDense, plan.weights().dense_bytes(r));
    rank.steady = rank.load;
    for (const auto& [memory_class, bytes] : rank_arenas) {
      rank.steady[memory_class] = bytes;
    }
  }
  return memory;
}

Result<void> AdmitMemory(const MemoryPlan& memory,
                         const std::vector<MemoryRoom>& rooms) {
  RejectionList rejections;
  for (const MemoryRoom& room : rooms) {
    ClassBytes need;
    for (const Rank r : room.ranks) {
      const RankMemory& rank = memory.ranks[static_cast<size_t>(r.value())];
      const ClassBytes& peak =
          rank.SteadyTotal() >= rank.LoadTotal() ? rank.steady : rank.load;
      for (const auto& [memory_class, bytes] : peak) {
        Bytes& sum = need[memory_class];
        sum = memory_class == MemoryClass::kMapped ? std::max(sum, bytes)
                                                   : sum + bytes;
      }
    }
    const Bytes total = Total(need);
    if (total <= room.available) continue;
    rejections.Add(
        RejectionCode::kMemoryShort, room.name,
        fmt::format("{} short: the plan needs {}",
                    HumanBytes(total - room.available), Breakdown(need)),
        HumanBytes(room.available), HumanBytes(total));
  }
  if (!rejections.empty()) return rejections.Take();
  return {};
}

}  // namespace signet::plan
