#pragma once
// The values of the text form, each from its one word. False when the word is
// not one; `value` is then unspecified. Numbers may be spelled in more ways
// than the printer's here; the parser compares the whole text afterwards.

#include <cstdint>
#include <string_view>

#include "base/digest.h"
#include "base/id.h"
#include "base/memory_class.h"
#include "plan/program_shape.h"
#include "step/buffer.h"
#include "step/steps.h"
#include "tensor/basis.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace signet::step::text_format {

bool ParseValue(std::string_view text, int32_t& value);
bool ParseValue(std::string_view text, int64_t& value);
bool ParseValue(std::string_view text, uint64_t& value);
bool ParseValue(std::string_view text, float& value);
bool ParseValue(std::string_view text, double& value);
bool ParseValue(std::string_view text, Digest& value);
bool ParseValue(std::string_view text, MemoryClass& value);
bool ParseValue(std::string_view text, plan::ShapeKind& value);
bool ParseValue(std::string_view text, plan::LogitsOf& value);
bool ParseValue(std::string_view text, tensor::DType& value);
bool ParseValue(std::string_view text, tensor::Basis& value);
bool ParseValue(std::string_view text, tensor::Shape& value);
bool ParseValue(std::string_view text, BufferKind& value);
bool ParseValue(std::string_view text, Part& value);
bool ParseValue(std::string_view text, IoRole& value);
bool ParseValue(std::string_view text, WeightRef& value);
bool ParseValue(std::string_view text, RouterKind& value);
bool ParseValue(std::string_view text, DeltaForm& value);
bool ParseValue(std::string_view text, LogitRows& value);
bool ParseValue(std::string_view text, ExpertPart& value);
/// Leaves the epoch as it is.
bool ParseValue(std::string_view text, GroupRef& value);

template <typename Tag>
bool ParseValue(std::string_view text, Id<Tag>& id) {
  int32_t value = 0;
  if (!ParseValue(text, value)) return false;
  id = Id<Tag>(value);
  return true;
}

}  // namespace signet::step::text_format
