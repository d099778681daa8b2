#pragma once
// Where the state of a sequence lies on every rank, read off the sealed
// programs, and its gathering from pages and shards into (layer, head,
// position) order. Over an axis that shards heads each coordinate holds its
// heads in order; ranks that differ only otherwise hold copies.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/id.h"
#include "evidence/record.h"
#include "exec/arenas.h"
#include "plan/model_plan.h"
#include "step/program.h"

namespace signet::evidence {

/// State buffers of one layer in the arenas of one rank.
struct LayerState {
  std::optional<step::BufferDecl> k;
  std::optional<step::BufferDecl> v;
  std::optional<step::BufferDecl> conv;
  std::optional<step::BufferDecl> recurrent;
  int64_t key_width = 0;    // of this rank's conv channels: one of q and k
  int64_t value_width = 0;  // and v
};

/// [layer], empty entries for layers of other stages.
using RankState = std::vector<LayerState>;

RankState FindState(const step::SealedProgram& program,
                    const plan::ModelPlan& plan);

/// The layer whose input norm `step` is, if it is one.
std::optional<LayerId> LayerBegun(const step::Step& step,
                                  const step::SealedProgram& program,
                                  const plan::ModelPlan& plan);

/// One rank's memory and page table.
struct RankMemory {
  std::span<const std::byte> kv;
  std::span<const std::byte> recurrent;
  std::span<const int32_t> page_table;  // [slots, pages per slot]

  const std::byte* At(const step::BufferDecl& buffer) const {
    const auto& arena = buffer.arena == MemoryClass::kKv ? kv : recurrent;
    return arena.data() + buffer.offset_bytes;
  }
};

class StateGatherer {
 public:
  /// `programs`: any program of each rank. `plan` must outlive this.
  StateGatherer(const plan::ModelPlan& plan,
                const std::vector<const step::SealedProgram*>& programs);

  /// The keys and values of positions [begin, end), and the conv and recurrent
  /// state, which stand for position end - 1, of the sequence in slot 0.
  /// Copies that differ are told in `faults`.
  std::vector<Piece> Gather(const std::vector<RankMemory>& memory,
                            int64_t begin, int64_t end,
                            std::vector<SelfFault>* faults) const;

 private:
  const plan::ModelPlan& plan_;
  std::vector<RankState> ranks_;
};

}  // namespace signet::evidence
