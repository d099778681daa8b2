// Dense products: Projection and Logits.

#include <array>
#include <cstddef>

#include "backend/gpu/gpu_kernels.h"
#include "backend/gpu/product.h"
#include "backend/kernels.h"

namespace signet::backend::gpu {
namespace {

Status Multiply(Stream stream, int num_sms, tensor::DType x_dtype,
                const Product& product) {
  return x_dtype == tensor::DType::kBF16
             ? MultiplyRounded(stream, num_sms, {&product, 1})
             : MultiplyFloat(stream, num_sms, product);
}

}  // namespace

void GpuKernels::Projection(LaunchKey, const ProjectionArgs& args) {
  Check(Multiply(stream_, num_sms_, args.x.dtype,
                 {.live = args.rows.live,
                  .capacity = args.rows.capacity,
                  .x = args.x.data,
                  .weight = args.weight,
                  .out = args.out}));
}

void GpuKernels::RoundedProducts(LaunchKey, const RoundedProductsArgs& args) {
  std::array<Product, kMaxFusedProducts> products;
  const auto count = static_cast<size_t>(args.num_products);
  for (size_t p = 0; p < count; ++p) {
    const ProjectionArgs& product = args.products[p];
    products[p] = {.live = product.rows.live,
                   .capacity = product.rows.capacity,
                   .x = product.x.data,
                   .weight = product.weight,
                   .out = product.out};
  }
  Check(MultiplyRounded(stream_, num_sms_, {products.data(), count}));
}

void GpuKernels::Logits(LaunchKey, const LogitsArgs& args) {
  Check(Multiply(stream_, num_sms_, args.x.dtype,
                 {.live = args.rows.live,
                  .capacity = args.rows.capacity,
                  .last_row = args.which == LogitRows::kLast,
                  .x = args.x.data,
                  .weight = args.weight,
                  .out = args.out}));
}

}  // namespace signet::backend::gpu
