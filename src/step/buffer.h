#pragma once
// The typed buffers of a program. A buffer is (arena, offset, bytes, dtype,
// rank-local shape) and becomes an address only in exec::Bind.

#include <cstdint>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "base/id.h"
#include "base/memory_class.h"
#include "model/manifest.h"
#include "tensor/basis.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"
#include "topology/axis.h"

namespace signet::step {

/// Equal on all ranks of the axis; addends of a sum; each rank its own part
/// (architecture, principle 4).
enum class PartKind { kWhole, kPartial, kShard };

struct Part {
  PartKind kind = PartKind::kWhole;
  topology::Axis axis = topology::Axis::kEp;  // of kPartial and kShard

  static constexpr Part Whole() { return Part{}; }
  static constexpr Part Partial(topology::Axis axis) {
    return Part{PartKind::kPartial, axis};
  }
  static constexpr Part Shard(topology::Axis axis) {
    return Part{PartKind::kShard, axis};
  }
  friend constexpr bool operator==(const Part& a, const Part& b) {
    return a.kind == b.kind && (a.kind == PartKind::kWhole || a.axis == b.axis);
  }
};

/// `whole`, `partial(ep)`, `shard(tp)`.
std::string ToString(Part part);
std::optional<Part> ParsePart(std::string_view text);

enum class BufferKind {
  kInput,     // written by the executor before the call
  kConstant,  // written once when the arenas are made
  kWeight,    // a manifest entry, read only
  kExperts,   // a projection of an expert group, read only
  kState,     // survives the call; updated in place
  kFlag,      // the sticky error word, or-ed into
  kWork,      // written by exactly one step of the call, then read
};

std::string_view Name(BufferKind kind);
std::optional<BufferKind> ParseBufferKind(std::string_view text);

/// The executor fills or reads these by meaning, not by name.
enum class IoRole {
  kIds,           // i32 [B]
  kLive,          // i32 [1]
  kSlot,          // i32 [B]
  kPosition,      // i32 [B]
  kPageTable,     // i32 [slots, pages_per_slot]
  kSampling,      // i32 [logit rows, 8], backend::SamplingRow
  kSampled,       // i32 [logit rows], an output
  kLogits,        // f32 [logit rows, V], an output
  kRouteIds,      // i32 [B, K], precomputed routes
  kRouteWeights,  // f32 [B, K], precomputed routes
  kBlockInput,    // f32 [B, H], input of a routed block
  kBlockOutput,   // f32 [B, H], output of a routed block
  kFlags,         // i32 [1]
  kInvFreq,       // f32 [rotary_dim / 2], constant
};

std::string_view Name(IoRole role);
std::optional<IoRole> ParseIoRole(std::string_view text);

enum class ExpertPart { kGateUp, kDown };

std::string_view Name(ExpertPart part);
std::optional<ExpertPart> ParseExpertPart(std::string_view text);

/// Which bytes a kWeight or kExperts buffer stands for.
struct WeightRef {
  std::optional<WeightId> weight;       // kWeight
  std::optional<LayerId> expert_layer;  // kExperts
  ExpertPart part = ExpertPart::kGateUp;
  friend bool operator==(const WeightRef&, const WeightRef&) = default;
};

struct BufferDecl {
  std::string name;  // unique in the program; [A-Za-z0-9_.]+
  BufferKind kind = BufferKind::kWork;
  tensor::DType dtype = tensor::DType::kF32;
  tensor::Shape shape;  // rank-local
  tensor::Basis basis = tensor::Basis::kNatural;
  Part part;
  Rank rank{0};
  MemoryClass arena = MemoryClass::kWorkspace;
  uint64_t offset_bytes = 0;  // in the arena; 0 for kMapped
  Bytes size;                 // physical bytes
  std::optional<WeightRef> weight;
  std::optional<IoRole> io;
  friend bool operator==(const BufferDecl&, const BufferDecl&) = default;
};

/// Whether `text` may name a buffer.
bool IsBufferName(std::string_view text);

}  // namespace signet::step
