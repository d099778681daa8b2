// S2 of the collectives and of the model's head.

#include "step/rules/types.h"

namespace signet::step::rules {
namespace {

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
  const int64_t rows = draft_.shape.logit_rows();
  Type("x", s.x, DType::kF32, {rows, dims_.vocab});
  Type("out", s.out, DType::kF32, {rows, config_.vocab});
  Pass(s.x, s.out);
}

// Along tp the first rank draws; along pp the last stage has what was drawn.
void TypeRules::operator()(const Broadcast& s) {
  const int64_t rows = draft_.shape.logit_rows();
  const std::vector<Rank> group = plan_.mesh().Group(s.group.axis, draft_.rank);
  const Rank root =
      s.group.axis == topology::Axis::kPp ? group.back() : group.front();
  Attribute("root", int64_t{s.root.value()}, int64_t{root.value()});
  Attribute("x given", int64_t{s.x.has_value()},
            int64_t{s.root == draft_.rank});
  if (s.x) {
    Type("x", *s.x, DType::kI32, {rows});
    Need("x", *s.x, {Value::kSampled, 0});
  }
  Type("out", s.out, DType::kI32, {rows});
  Give(s.out, {Value::kSampled, 0});
}

// The residual leaves with the last layer of a stage and enters the next.
void TypeRules::operator()(const BandTransfer& s) {
  const bool source =
      !s.group.ranks.empty() && s.group.ranks.front() == draft_.rank;
  Attribute("x given", int64_t{s.x.has_value()}, int64_t{source});
  Attribute("out given", int64_t{s.out.has_value()}, int64_t{!source});
  if (s.x) {
    Rows("x", *s.x, config_.hidden);
    Need("x", *s.x,
         {Value::kResidual, static_cast<int32_t>(2 * dims_.end_layer)});
  }
  if (s.out) {
    Rows("out", *s.out, config_.hidden);
    Give(*s.out,
         {Value::kResidual, static_cast<int32_t>(2 * dims_.first_layer)});
  }
}

void TypeRules::operator()(const Logits& s) {
  Inputs("x", s.x, rows_, config_.hidden);
  Type("out", s.out, DType::kF32, {draft_.shape.logit_rows(), dims_.vocab});
  Attribute("which", s.which, LogitRowsOf(draft_.shape));
  Weight("weight", s.weight, {model::Role::kLmHead});
  Need("x", s.x, {Value::kFinal, 0});
  Give(s.out, {Value::kLogits, 0});
}

void TypeRules::operator()(const Sample& s) {
  const int64_t rows = draft_.shape.logit_rows();
  Attribute("draws on this rank", int64_t{1}, int64_t{dims_.samples()});
  Type("logits", s.logits, DType::kF32, {rows, config_.vocab});
  Need("logits", s.logits, {Value::kLogits, 0});
  Io("params", s.params, IoRole::kSampling, DType::kI32, {rows, 8});
  Type("scratch", s.scratch, DType::kI32, {rows, config_.vocab});
  Type("ids", s.ids, DType::kI32, {rows});
  Io("flag", s.flag, IoRole::kFlags, DType::kI32, {1});
  Attribute("which", s.which, LogitRowsOf(draft_.shape));
  Give(s.scratch, {Value::kScratch, 0});
  Give(s.ids, {Value::kSampled, 0});
}

}  // namespace signet::step::rules
