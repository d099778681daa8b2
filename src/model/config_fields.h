#pragma once
// Reads typed, range-checked fields of one JSON object and notes every field
// that is missing or wrong. Borrows the object and the list; one thread.

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace signet::model {

/// No dimension, count or row number of a model reaches this.
inline constexpr int64_t kDimensionBound = int64_t{1} << 31;

class FieldReader {
 public:
  /// `where` is the file and, for a nested object, the key that leads to it.
  FieldReader(const nlohmann::json& object, std::string where,
              RejectionList* rejections)
      : object_(object), where_(std::move(where)), rejections_(rejections) {}

  /// The value of a key, or null when it is absent or null in the file.
  const nlohmann::json* Get(std::string_view key) const;
  bool Has(std::string_view key) const { return Get(key) != nullptr; }

  /// A whole number from 1 to `bound` - 1. A fault gives 0 (and is noted), so
  /// that the caller can go on and find the next one.
  int64_t Positive(std::string_view key, int64_t bound = kDimensionBound);
  int64_t PositiveOr(std::string_view key, int64_t absent,
                     int64_t bound = kDimensionBound);
  /// A finite number; unset when absent or (noted) not one.
  std::optional<double> Number(std::string_view key);
  bool BoolOr(std::string_view key, bool absent);
  std::string StringOr(std::string_view key, std::string absent);
  /// A whole number, a list of them, or nothing; each in [0, bound). Ascending,
  /// without repetition.
  std::vector<int32_t> Ids(std::string_view key, int64_t bound);

  /// File, then the path of keys.
  std::string Where(std::string_view key) const;
  void Missing(std::string_view key);
  void Invalid(std::string_view key, std::string message, std::string want);
  void Unsupported(std::string_view key, std::string message);
  /// Notes kConfigFieldInvalid on `key` unless the product of factors is below
  /// `bound`. Only meaningful when every factor is positive.
  void CheckProduct(std::string_view key,
                    std::initializer_list<int64_t> factors, int64_t bound);

 private:
  std::string Got(std::string_view key) const;

  const nlohmann::json& object_;
  std::string where_;
  RejectionList* rejections_;
};

}  // namespace signet::model
