#pragma once
// Element types of tensors and buffers.

#include <cstdint>
#include <optional>
#include <string_view>

namespace signet::tensor {

enum class DType { kF32, kBF16, kF16, kI32 };

constexpr uint64_t SizeOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kBF16:
    case DType::kF16:
      return 2;
  }
  return 0;
}

/// `f32`, `bf16`, `f16`, `i32`.
constexpr std::string_view Name(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "f32";
    case DType::kBF16:
      return "bf16";
    case DType::kF16:
      return "f16";
    case DType::kI32:
      return "i32";
  }
  return "";
}

constexpr std::optional<DType> ParseDType(std::string_view name) {
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kI32}) {
    if (Name(dtype) == name) return dtype;
  }
  return std::nullopt;
}

}  // namespace signet::tensor
