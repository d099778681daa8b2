// Dense products of rounded inputs.

#include <cstdint>

#include "backend/gpu/product.h"
#include "backend/gpu/product_config.h"
#include "backend/gpu/product_operands.h"
#include "backend/gpu/vendor.h"

namespace signet::backend::gpu {
namespace {

/// By all rows, so that the last one has the bits it has among the others; and
/// by the product alone, so that it has the bits it has beside others.
ProductConfig ConfigOf(const Product& product) {
  const WeightView& weight = product.weight;
  return ConfigOf(DenseDesc{
      .rows = product.capacity,
      .matrix_rows = weight.rows,
      .cols = weight.cols,
      .packed = weight.dtype == tensor::DType::kBF16 && weight.cols % 8 == 0 &&
                IsAligned16(product.x) && IsAligned16(weight.data)});
}

}  // namespace

Status MultiplyRounded(Stream stream, int num_sms,
                       std::span<const Product> products) {
  while (!products.empty()) {
    const Product& first = products.front();
    const ProductConfig config = ConfigOf(first);
    Operands operands = {.x = first.x,
                         .cols = first.weight.cols,
                         .live = first.live,
                         .capacity = first.last_row ? 1 : first.capacity,
                         .input_rows = first.capacity,
                         .last_row = first.last_row};
    size_t count = 0;
    while (count < products.size() && count < kMaxDenseParts &&
           products[count].weight.dtype == first.weight.dtype &&
           ConfigOf(products[count]) == config) {
      const Product& product = products[count];
      operands.parts[count++] = {product.weight.data, product.weight.rows,
                                 product.out};
    }
    operands.num_parts = static_cast<int>(count);
    const Status status =
        Multiply(stream, num_sms, config, tensor::DType::kBF16,
                 first.weight.dtype, operands);
    if (status != kOk) return status;
    products = products.subspan(count);
  }
  return kOk;
}

}  // namespace signet::backend::gpu
