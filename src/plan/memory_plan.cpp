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
    rank.load[MemoryClass::kMapped] = plan.manifest().language_bytes();
    rank.steady = rank.load;
    for (const auto& [memory_class, bytes] : rank_arenas) {
      rank.steady[memory_class] += bytes;
    }
  }
  return memory;
}

Result<void> AdmitMemory(const MemoryPlan& memory, const topology::Mesh& mesh,
                         const std::vector<DeviceRoom>& rooms) {
  RejectionList rejections;
  for (const DeviceRoom& room : rooms) {
    ClassBytes need;
    Bytes mapped;
    for (size_t r = 0; r < memory.ranks.size(); ++r) {
      if (mesh.device(Rank(static_cast<int32_t>(r))).uuid != room.uuid) {
        continue;
      }
      const RankMemory& rank = memory.ranks[r];
      const ClassBytes& peak =
          rank.SteadyTotal() >= rank.LoadTotal() ? rank.steady : rank.load;
      for (const auto& [memory_class, bytes] : peak) {
        if (memory_class == MemoryClass::kMapped) {
          mapped = std::max(mapped, bytes);
        } else {
          need[memory_class] += bytes;
        }
      }
    }
    need[MemoryClass::kMapped] = mapped;
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
