#pragma once
// The dimensions of a tensor, row-major, at most four. Values.

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "base/bytes.h"
#include "tensor/dtype.h"

namespace signet::tensor {

class Shape {
 public:
  static constexpr int kMaxDims = 4;

  constexpr Shape() = default;
  constexpr Shape(std::initializer_list<int64_t> dims)
      : Shape(std::span<const int64_t>(dims.begin(), dims.size())) {}
  /// At most kMaxDims dimensions.
  explicit constexpr Shape(std::span<const int64_t> dims)
      : num_dims_(static_cast<int>(dims.size())) {
    for (size_t i = 0; i < dims.size(); ++i) dims_[i] = dims[i];
  }

  constexpr int num_dims() const { return num_dims_; }
  constexpr int64_t operator[](int i) const {
    return dims_[static_cast<size_t>(i)];
  }
  /// The product of all dimensions, in elements; sticks on overflow. 1 for a
  /// scalar, 0 if a dimension is 0.
  constexpr Bytes NumElements() const {
    Bytes product(1);
    for (int i = 0; i < num_dims_; ++i) {
      product = product * static_cast<uint64_t>((*this)[i]);
    }
    return product;
  }
  /// Contiguous storage for this shape.
  constexpr Bytes StorageBytes(DType dtype) const {
    return NumElements() * SizeOf(dtype);
  }
  friend constexpr bool operator==(const Shape&, const Shape&) = default;

 private:
  std::array<int64_t, kMaxDims> dims_ = {};
  int num_dims_ = 0;
};

/// `[2,64]`.
std::string ToString(const Shape& shape);

}  // namespace signet::tensor
