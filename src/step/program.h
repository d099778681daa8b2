#pragma once
// A program before and after sealing. ProgramDraft is a plain value that
// `lower` writes; SealedProgram is immutable, made by Seal alone (contract S7).

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/digest.h"
#include "base/id.h"
#include "base/memory_class.h"
#include "base/pass_key.h"
#include "base/result.h"
#include "plan/model_plan.h"
#include "plan/program_shape.h"
#include "step/buffer.h"
#include "step/steps.h"

namespace signet::step {

/// What the program computes: the whole model, or one routed block (its
/// input, routes and output given by the caller).
struct Recipe {
  enum class Kind { kModel, kRoutedBlock } kind = Kind::kModel;
  std::optional<LayerId> layer;                  // kRoutedBlock
  RouterKind router = RouterKind::kSoftmaxTopK;  // kRoutedBlock
  friend bool operator==(const Recipe&, const Recipe&) = default;
};

struct ProgramDraft {
  Digest contract;
  Rank rank{0};
  Recipe recipe;
  plan::ProgramShape shape;
  std::map<MemoryClass, Bytes> arena_bytes;  // planned size of each arena
  IdVector<BufferId, BufferDecl> buffers;
  BufferId live = kNoBuffer;  // [1] i32; every step reads it
  std::vector<Step> steps;
};

class SealedProgram {
 public:
  SealedProgram(PassKey<class Sealer>, ProgramDraft draft, Digest id,
                std::string text);
  SealedProgram(SealedProgram&&) = default;
  SealedProgram& operator=(SealedProgram&&) = default;

  const Digest& contract() const { return draft_.contract; }
  /// Digest of the text (P6: the program id).
  const Digest& id() const { return id_; }
  Rank rank() const { return draft_.rank; }
  const Recipe& recipe() const { return draft_.recipe; }
  const plan::ProgramShape& shape() const { return draft_.shape; }
  const std::map<MemoryClass, Bytes>& arena_bytes() const {
    return draft_.arena_bytes;
  }
  const IdVector<BufferId, BufferDecl>& buffers() const& {
    return draft_.buffers;
  }
  const IdVector<BufferId, BufferDecl>& buffers() const&& = delete;
  BufferId live() const { return draft_.live; }
  std::span<const Step> steps() const& { return draft_.steps; }
  std::span<const Step> steps() const&& = delete;
  const std::string& text() const& { return text_; }
  const std::string& text() const&& = delete;
  /// The buffer of an io role; unset when the program has none.
  std::optional<BufferId> FindIo(IoRole role) const;

 private:
  ProgramDraft draft_;
  Digest id_;
  std::string text_;
};

/// Proves the draft against the plan in the phases of step/seal.cpp, or gives
/// every reason of the first phase that fails. What sealing guarantees, and
/// what not, is at the head of step/seal.h.
Result<SealedProgram> Seal(ProgramDraft draft, const plan::ModelPlan& plan);

/// Text form; prints every field but epochs, and parses to an equal draft
/// (epochs are taken from `epoch`).
std::string ToText(const ProgramDraft& draft);
Result<ProgramDraft> ParseProgram(std::string_view text, uint64_t epoch);

}  // namespace signet::step
