#include "evidence/bench_steps.h"

#include "base/overload.h"
#include "step/operands.h"

namespace signet::evidence {
namespace {

using step::BufferDecl;
using step::BufferKind;

double Real(int64_t value) { return static_cast<double>(value); }

double SizeOf(const BufferDecl& buffer) {
  return static_cast<double>(buffer.size.value());
}

// A row of the first dimension.
double RowBytes(const BufferDecl& buffer) {
  return SizeOf(buffer) / Real(buffer.shape[0]);
}

// A position of a cache: [pages, page_tokens, ...].
double PositionBytes(const BufferDecl& cache) {
  return RowBytes(cache) / Real(cache.shape[1]);
}

double Elements(const BufferDecl& buffer) {
  return static_cast<double>(buffer.shape.NumElements().value());
}

class Coster {
 public:
  Coster(const step::SealedProgram& program, const CallRows& rows,
         double experts, int64_t top_k)
      : program_(program),
        rows_(rows),
        live_(Real(rows.live)),
        experts_(experts),
        top_k_(Real(top_k)) {}

  double Bytes(const step::Step& step) const {
    double bytes = 0;
    step::ForEachOperand(step,
                         [&](std::string_view, BufferId id, step::Access) {
                           bytes += OperandBytes(step, Buffer(id));
                         });
    return bytes;
  }

  double Operations(const step::Step& step) const {
    return std::visit(
        Overload{
            [&](const step::Projection& s) {
              return 2 * live_ * Elements(Buffer(s.weight));
            },
            [&](const step::Logits& s) {
              const bool last = s.which == step::LogitRows::kLast;
              return 2 * (last ? 1 : live_) * Elements(Buffer(s.weight));
            },
            [&](const step::Conv& s) {
              return 2 * live_ * Elements(Buffer(s.weight));
            },
            // In the recurrent form, whichever it is computed in.
            [&](const step::DeltaRule& s) {
              return 3 * 2 * live_ * Real(s.value_heads) * Real(s.key_dim) *
                     Real(s.value_dim);
            },
            [&](const step::Attention& s) {
              return 2 * 2 * rows_.attended * Real(s.heads) * Real(s.head_dim);
            },
            [&](const step::IndexedMoeGemv& s) { return OfSlots(s.experts); },
            [&](const step::GroupedMoeGemm& s) { return OfSlots(s.experts); },
            [](const auto&) { return 0.0; },
        },
        step);
  }

 private:
  const BufferDecl& Buffer(BufferId id) const { return program_.buffers()[id]; }

  double OfSlots(BufferId experts) const {
    const BufferDecl& buffer = Buffer(experts);
    return 2 * live_ * top_k_ * Elements(buffer) / Real(buffer.shape[0]);
  }

  double OperandBytes(const step::Step& step, const BufferDecl& buffer) const {
    switch (buffer.kind) {
      case BufferKind::kWeight:
        // Of a table, the rows that are looked up.
        return std::holds_alternative<step::Embed>(step)
                   ? RowBytes(buffer) * live_
                   : SizeOf(buffer);
      case BufferKind::kExperts:
        // Other steps ask only who owns them.
        return std::holds_alternative<step::IndexedMoeGemv>(step) ||
                       std::holds_alternative<step::GroupedMoeGemm>(step)
                   ? RowBytes(buffer) * experts_
                   : 0;
      case BufferKind::kState:
        return StateBytes(step, buffer);
      case BufferKind::kInput:
      case BufferKind::kConstant:
      case BufferKind::kFlag:
      case BufferKind::kWork:
        return 0;
    }
    return 0;
  }

  double StateBytes(const step::Step& step, const BufferDecl& state) const {
    const bool is_decode = program_.shape().kind == plan::ShapeKind::kDecode;
    if (std::holds_alternative<step::KvAppend>(step)) {
      return PositionBytes(state) * live_;
    }
    if (std::holds_alternative<step::Attention>(step)) {
      // The rows of a chunk share what they read.
      return PositionBytes(state) *
             (is_decode ? rows_.attended : Real(rows_.end));
    }
    return 2 * RowBytes(state) * (is_decode ? live_ : 1);
  }

  const step::SealedProgram& program_;
  const CallRows& rows_;
  double live_;
  double experts_;
  double top_k_;
};

}  // namespace

Cost CostOf(const step::Step& step, const step::SealedProgram& program,
            const CallRows& rows, double experts, int64_t top_k) {
  const Coster coster(program, rows, experts, top_k);
  return {.bytes = coster.Bytes(step), .operations = coster.Operations(step)};
}

}  // namespace signet::evidence
