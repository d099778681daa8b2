#include "step/text_values.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <span>
#include <system_error>

#include "topology/mesh.h"

namespace signet::step::text_format {
namespace {

template <typename T, typename... Base>
bool ParseNumber(std::string_view text, T& value, Base... base) {
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value, base...);
  return parsed.ec == std::errc() && parsed.ptr == end;
}

template <typename T>
bool Assign(std::optional<T> parsed, T& value) {
  if (parsed) value = *parsed;
  return parsed.has_value();
}

template <typename T, size_t N>
bool ParseOneOf(const std::array<T, N>& all, std::string_view text, T& value) {
  for (const T candidate : all) {
    if (Name(candidate) != text) continue;
    value = candidate;
    return true;
  }
  return false;
}

// Calls `take(item)` for the items of a list separated by commas, until one is
// refused.
template <typename Take>
bool ParseList(std::string_view text, Take take) {
  while (!text.empty()) {
    const std::string_view item = text.substr(0, text.find(','));
    if (!take(item)) return false;
    text.remove_prefix(std::min(text.size(), item.size() + 1));
  }
  return true;
}

}  // namespace

bool ParseValue(std::string_view text, int32_t& value) {
  return ParseNumber(text, value);
}
bool ParseValue(std::string_view text, int64_t& value) {
  return ParseNumber(text, value);
}
bool ParseValue(std::string_view text, uint64_t& value) {
  return ParseNumber(text, value);
}
bool ParseValue(std::string_view text, float& value) {
  return ParseNumber(text, value);
}
bool ParseValue(std::string_view text, double& value) {
  return ParseNumber(text, value);
}

bool ParseValue(std::string_view text, Digest& value) {
  uint64_t high = 0;
  uint64_t low = 0;
  if (text.size() != 32 || !ParseNumber(text.substr(0, 16), high, 16) ||
      !ParseNumber(text.substr(16), low, 16)) {
    return false;
  }
  value = Digest(high, low);
  return true;
}

bool ParseValue(std::string_view text, MemoryClass& value) {
  return Assign(ParseMemoryClass(text), value);
}
bool ParseValue(std::string_view text, plan::ShapeKind& value) {
  return ParseOneOf(
      std::array{plan::ShapeKind::kDecode, plan::ShapeKind::kPrefill}, text,
      value);
}
bool ParseValue(std::string_view text, plan::LogitsOf& value) {
  return ParseOneOf(
      std::array{plan::LogitsOf::kLastRow, plan::LogitsOf::kEveryRow}, text,
      value);
}
bool ParseValue(std::string_view text, tensor::DType& value) {
  return Assign(tensor::ParseDType(text), value);
}
bool ParseValue(std::string_view text, tensor::Basis& value) {
  return Assign(tensor::ParseBasis(text), value);
}
bool ParseValue(std::string_view text, BufferKind& value) {
  return Assign(ParseBufferKind(text), value);
}
bool ParseValue(std::string_view text, Part& value) {
  return Assign(ParsePart(text), value);
}
bool ParseValue(std::string_view text, IoRole& value) {
  return Assign(ParseIoRole(text), value);
}
bool ParseValue(std::string_view text, RouterKind& value) {
  return Assign(ParseRouterKind(text), value);
}
bool ParseValue(std::string_view text, DeltaForm& value) {
  return Assign(ParseDeltaForm(text), value);
}
bool ParseValue(std::string_view text, LogitRows& value) {
  return Assign(ParseLogitRows(text), value);
}
bool ParseValue(std::string_view text, ExpertPart& value) {
  return Assign(ParseExpertPart(text), value);
}

// `[2,64]`.
bool ParseValue(std::string_view text, tensor::Shape& value) {
  if (text.size() < 2 || text.front() != '[' || text.back() != ']') {
    return false;
  }
  std::array<int64_t, tensor::Shape::kMaxDims> dims = {};
  size_t num_dims = 0;
  const bool parsed =
      ParseList(text.substr(1, text.size() - 2), [&](std::string_view item) {
        return num_dims < dims.size() && ParseNumber(item, dims[num_dims++]);
      });
  if (!parsed) return false;
  value = tensor::Shape(std::span<const int64_t>(dims.data(), num_dims));
  return true;
}

// `w12`, `e3:gate_up`.
bool ParseValue(std::string_view text, WeightRef& value) {
  const size_t colon = text.find(':');
  if (colon != text.npos && !ParseValue(text.substr(colon + 1), value.part)) {
    return false;
  }
  text = text.substr(0, colon);
  if (!text.empty() && text.front() == 'w') {
    const std::string_view word = text.substr(0, text.find('e'));
    value.weight.emplace(0);
    if (!ParseValue(word.substr(1), *value.weight)) return false;
    text.remove_prefix(word.size());
  }
  if (!text.empty() && text.front() == 'e') {
    value.expert_layer.emplace(0);
    return ParseValue(text.substr(1), *value.expert_layer);
  }
  return text.empty();
}

// `ep:0,1`; no more ranks than a mesh may have.
bool ParseValue(std::string_view text, GroupRef& value) {
  const size_t colon = text.find(':');
  if (colon == text.npos ||
      !Assign(topology::ParseAxis(text.substr(0, colon)), value.axis)) {
    return false;
  }
  value.ranks.clear();
  return ParseList(text.substr(colon + 1), [&](std::string_view item) {
    Rank rank(0);
    if (!ParseValue(item, rank)) return false;
    value.ranks.push_back(rank);
    return value.ranks.size() <=
           static_cast<size_t>(topology::MeshSpec::kMaxRanks);
  });
}

}  // namespace signet::step::text_format
