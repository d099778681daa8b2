// Dense products of rounded inputs.

#include <cstdint>

#include "backend/gpu/product.h"
#include "backend/gpu/product_config.h"
#include "backend/gpu/product_operands.h"
#include "backend/gpu/vendor.h"

namespace signet::backend::gpu {

Status MultiplyRounded(Stream stream, int num_sms, const Product& product) {
  const WeightView& weight = product.weight;
  const Operands operands = {
      .x = product.x,
      .cols = weight.cols,
      .out = product.out,
      .out_stride = weight.rows,
      .matrix = Matrix::kDense,
      .matrix_rows = weight.rows,
      .dense = weight.data,
      .live = product.live,
      .capacity = product.last_row ? 1 : product.capacity,
      .last_row = product.last_row,
  };
  // By all rows, so that the last one has the bits it has among the others.
  const ProductConfig config = ConfigOf(DenseDesc{
      .rows = product.capacity,
      .matrix_rows = weight.rows,
      .cols = weight.cols,
      .packed = weight.dtype == tensor::DType::kBF16 && weight.cols % 8 == 0 &&
                IsAligned16(product.x) && IsAligned16(weight.data)});
  return Multiply(stream, num_sms, config, tensor::DType::kBF16, weight.dtype,
                  operands);
}

}  // namespace signet::backend::gpu
