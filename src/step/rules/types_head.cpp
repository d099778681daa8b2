// S2 of the collectives and of the model's head.

#include <algorithm>

#include "step/rules/types.h"

namespace signet::step::rules {
namespace {

// The columns that the member at `index` of `count` holds of `total`: blocks of
// ceil(total / count), the last shorter (P3b).
int64_t BlockSize(int64_t total, int64_t count, int64_t index) {
  const int64_t block = (total + count - 1) / count;
  return std::clamp<int64_t>(total - index * block, 0, block);
}

LogitRows LogitRowsOf(const plan::ProgramShape& shape) {
  return shape.logits == plan::LogitsOf::kEveryRow ? LogitRows::kAll
                                                   : LogitRows::kLast;
}

}  // namespace

void TypeRules::Pass(BufferId x, BufferId out) {
  const BufferKind kind = draft_.buffers[x].kind;
  if (kind != BufferKind::kWork) {
    Refuse(RejectionCode::kOperandRole, "x", x,
           "a collective moves what a step has made", std::string(Name(kind)),
           "work");
  }
  Give(out, MeaningOf(x));
}

void TypeRules::operator()(const AllReduce& s) {
  Rows("x", s.x, config_.hidden);
  Rows("out", s.out, config_.hidden);
  Pass(s.x, s.out);
}

void TypeRules::operator()(const Gather& s) {
  const BufferDecl& x = draft_.buffers[s.x];
  const BufferDecl& out = draft_.buffers[s.out];
  const auto& ranks = s.group.ranks;
  const auto position =
      std::find(ranks.begin(), ranks.end(), draft_.rank) - ranks.begin();
  const auto count = static_cast<int64_t>(ranks.size());
  if (out.shape.num_dims() == 2 && position < count) {
    Type("x", s.x, out.dtype,
         {out.shape[0], BlockSize(out.shape[1], count, position)}, x.basis);
  } else {
    Type("x", s.x, out.dtype, {rows_, 0}, x.basis);
  }
  Pass(s.x, s.out);
}

void TypeRules::operator()(const Broadcast& s) {
  const BufferDecl& x = draft_.buffers[s.x];
  Type("out", s.out, x.dtype, x.shape, x.basis);
  Pass(s.x, s.out);
}

void TypeRules::operator()(const BandTransfer& s) {
  Rows("x", s.x, config_.hidden);
  Rows("out", s.out, config_.hidden);
  Pass(s.x, s.out);
}

void TypeRules::operator()(const Logits& s) {
  Rows("x", s.x, config_.hidden);
  Type("out", s.out, DType::kF32, {draft_.shape.logit_rows(), config_.vocab});
  Attribute("which", s.which, LogitRowsOf(draft_.shape));
  Weight("weight", s.weight, {model::Role::kLmHead});
  Need("x", s.x, {Value::kFinal, 0});
  Give(s.out, {Value::kLogits, 0});
}

void TypeRules::operator()(const Sample& s) {
  const int64_t rows = draft_.shape.logit_rows();
  Type("logits", s.logits, DType::kF32, {rows, config_.vocab});
  Need("logits", s.logits, {Value::kLogits, 0});
  Io("params", s.params, IoRole::kSampling, DType::kI32, {rows, 8});
  Type("scratch", s.scratch, DType::kI32, {rows, config_.vocab});
  Io("ids", s.ids, IoRole::kSampled, DType::kI32, {rows});
  Io("flag", s.flag, IoRole::kFlags, DType::kI32, {1});
  Attribute("which", s.which, LogitRowsOf(draft_.shape));
  Give(s.scratch, {Value::kScratch, 0});
  Give(s.ids, {Value::kSampled, 0});
}

}  // namespace signet::step::rules
