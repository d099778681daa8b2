#include "model/config_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>

#include "base/bytes.h"
#include "model/strict_json.h"

namespace signet::model {

using nlohmann::json;

const json* FieldReader::Get(std::string_view key) const {
  const auto place = object_.find(key);
  if (place == object_.end() || place->is_null()) return nullptr;
  return &*place;
}

std::string FieldReader::Where(std::string_view key) const {
  return fmt::format("{}: {}", where_, key);
}

std::string FieldReader::Got(std::string_view key) const {
  const json* value = Get(key);
  return value == nullptr ? "" : Shown(*value);
}

void FieldReader::Missing(std::string_view key) {
  rejections_->Add(RejectionCode::kConfigFieldMissing, Where(key),
                   "a required field is missing");
}

void FieldReader::Invalid(std::string_view key, std::string message,
                          std::string want) {
  rejections_->Add(RejectionCode::kConfigFieldInvalid, Where(key),
                   std::move(message), Got(key), std::move(want));
}

void FieldReader::Unsupported(std::string_view key, std::string message) {
  rejections_->Add(RejectionCode::kConfigUnsupported, Where(key),
                   std::move(message), Got(key));
}

int64_t FieldReader::Positive(std::string_view key, int64_t bound) {
  const json* value = Get(key);
  if (value == nullptr) {
    Missing(key);
    return 0;
  }
  // Unsigned: the parser's type for whole numbers without a sign.
  if (!value->is_number_unsigned() || value->get<uint64_t>() == 0 ||
      value->get<uint64_t>() >= static_cast<uint64_t>(bound)) {
    Invalid(key, "the field is not a whole number in range",
            fmt::format("1 to {}", bound - 1));
    return 0;
  }
  return value->get<int64_t>();
}

int64_t FieldReader::PositiveOr(std::string_view key, int64_t absent,
                                int64_t bound) {
  return Has(key) ? Positive(key, bound) : absent;
}

std::optional<double> FieldReader::Number(std::string_view key) {
  const json* value = Get(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number() || !std::isfinite(value->get<double>())) {
    Invalid(key, "the field is not a finite number", "a number");
    return std::nullopt;
  }
  return value->get<double>();
}

bool FieldReader::BoolOr(std::string_view key, bool absent) {
  const json* value = Get(key);
  if (value == nullptr) return absent;
  if (!value->is_boolean()) {
    Invalid(key, "the field is not a truth value", "true or false");
    return absent;
  }
  return value->get<bool>();
}

std::string FieldReader::StringOr(std::string_view key, std::string absent) {
  const json* value = Get(key);
  if (value == nullptr) return absent;
  if (!value->is_string()) {
    Invalid(key, "the field is not a string", "a string");
    return absent;
  }
  return value->get<std::string>();
}

std::vector<int32_t> FieldReader::Ids(std::string_view key, int64_t bound) {
  const json* value = Get(key);
  if (value == nullptr) return {};
  const auto* list = value->get_ptr<const json::array_t*>();
  std::vector<int32_t> ids;
  for (const json& id :
       list != nullptr ? std::span(*list) : std::span(value, 1)) {
    if (!id.is_number_unsigned() ||
        id.get<uint64_t>() >= static_cast<uint64_t>(bound)) {
      Invalid(key, "not a list of ids in range",
              fmt::format("0 to {}", bound - 1));
      return {};
    }
    ids.push_back(id.get<int32_t>());
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

void FieldReader::CheckProduct(std::string_view key,
                               std::initializer_list<int64_t> factors,
                               int64_t bound) {
  Bytes product(1);
  for (const int64_t factor : factors) {
    product = product * static_cast<uint64_t>(factor);
  }
  if (product < Bytes(static_cast<uint64_t>(bound))) return;
  Invalid(key, "a size that follows from the field is too large",
          fmt::format("a product below {}", bound));
}

}  // namespace signet::model
