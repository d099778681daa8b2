#pragma once
// Hand-written drafts for tests of single rules: buffers with the fields a rule
// looks at, steps in order. Test code only.

#include <cstdint>
#include <cstdlib>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "model/rejection_cap.h"
#include "plan/layouter.h"
#include "step/program.h"
#include "topology/mesh.h"

namespace signet::step::testing {

/// `ep=4`, ... over distinct CPU ranks.
inline topology::Mesh MakeMesh(std::string_view text) {
  const topology::MeshSpec spec = *topology::MeshSpec::Parse(text);
  std::vector<topology::DeviceIdentity> devices;
  for (int i = 0; i < spec.num_ranks(); ++i) {
    devices.push_back({.backend = "cpu",
                       .uuid = "machine/" + std::to_string(i),
                       .pci = "",
                       .ordinal = i,
                       .architecture = "AVX2"});
  }
  return *topology::Mesh::Make(spec, std::move(devices),
                               topology::Emulation::kRefused);
}

/// The codes of what a check found.
inline std::set<RejectionCode> CodesOf(model::CappedRejections findings) {
  std::set<RejectionCode> codes;
  RejectionList list;
  findings.FlushInto("test", &list);
  if (list.empty()) return codes;
  const Error error = list.Take().value();
  for (const Rejection& rejection : std::get<Rejections>(error).list()) {
    codes.insert(rejection.code);
  }
  return codes;
}

class DraftBuilder {
 public:
  static constexpr int64_t kRows = 2;
  static constexpr int64_t kWidth = 16;

  BufferId Declare(BufferDecl buffer) {
    buffer.size = buffer.shape.StorageBytes(buffer.dtype);
    Bytes& arena = draft.arena_bytes[buffer.arena];
    if (buffer.arena != MemoryClass::kMapped) {
      buffer.offset_bytes = arena.AlignUp(plan::kBufferAlignment).value();
      arena = Bytes(buffer.offset_bytes) + buffer.size;
    }
    return draft.buffers.Push(std::move(buffer));
  }
  /// f32 [kRows, kWidth] in the workspace, where no two lie together.
  BufferId Work(std::string name, Part part = Part::Whole()) {
    return Declare(
        {.name = std::move(name), .shape = {kRows, kWidth}, .part = part});
  }
  BufferId Weight(std::string name, Part part = Part::Whole()) {
    return Declare({.name = std::move(name),
                    .kind = BufferKind::kWeight,
                    .shape = {kWidth, kWidth},
                    .part = part,
                    .arena = MemoryClass::kMapped,
                    .weight = WeightRef{.weight = WeightId(0)}});
  }
  BufferId State(std::string name, Part part = Part::Whole()) {
    return Declare({.name = std::move(name),
                    .kind = BufferKind::kState,
                    .shape = {kWidth},
                    .part = part,
                    .arena = MemoryClass::kRecurrent});
  }
  BufferId Input(std::string name, IoRole role = IoRole::kBlockInput) {
    return Declare({.name = std::move(name),
                    .kind = BufferKind::kInput,
                    .shape = {kRows, kWidth},
                    .arena = MemoryClass::kIo,
                    .io = role});
  }
  BufferId Output(std::string name, Part part = Part::Whole()) {
    return Declare({.name = std::move(name),
                    .shape = {kRows, kWidth},
                    .part = part,
                    .arena = MemoryClass::kIo,
                    .io = IoRole::kBlockOutput});
  }
  template <typename S>
  S& Add(S step) {
    draft.steps.emplace_back(std::move(step));
    return std::get<S>(draft.steps.back());
  }

  ProgramDraft draft;
};

/// Step number `n` of its kind.
template <typename S>
S& Nth(ProgramDraft& draft, int n = 0) {
  for (Step& step : draft.steps) {
    S* found = std::get_if<S>(&step);
    if (found != nullptr && n-- == 0) return *found;
  }
  std::abort();
}

}  // namespace signet::step::testing
