// Products with what stands before and after them in one launch.

#include <cstdint>

#include "backend/gpu/float_products.h"
#include "backend/gpu/gpu_kernels.h"

namespace signet::backend::gpu {
namespace {

bool IsFloat(const ProjectionArgs& product) {
  return product.x.dtype == tensor::DType::kF32;
}

FloatPart PartOf(const ProjectionArgs& product) {
  return {product.weight.data, product.weight.rows, product.out};
}

/// False if the products are not of one kind.
bool Describe(const NormProductsArgs& op, FloatProducts* out) {
  if (op.num_products < 1 || op.num_products > kMaxFusedProducts) return false;
  out->live = op.norm.rows.live;
  out->capacity = op.norm.rows.capacity;
  out->x = op.norm.x;
  out->cols = op.norm.width;
  out->norm = true;
  out->norm_weight = op.norm.weight;
  out->norm_offset = op.norm.offset;
  out->norm_eps = op.norm.eps;
  out->normed = op.keep_normed ? op.norm.out : nullptr;
  out->dtype = op.products[0].weight.dtype;
  for (int p = 0; p < op.num_products; ++p) {
    const ProjectionArgs& product = op.products[static_cast<size_t>(p)];
    if (!IsFloat(product) || product.weight.dtype != out->dtype ||
        product.weight.cols != out->cols) {
      return false;
    }
    out->parts[static_cast<size_t>(p)] = PartOf(product);
  }
  out->num_parts = op.num_products;
  if (op.activated) {
    if (op.num_products < 2 || op.activation.multiple != 1) return false;
    FloatPart& gate = out->parts[static_cast<size_t>(op.num_products - 2)];
    const FloatPart& up = out->parts[static_cast<size_t>(op.num_products - 1)];
    if (gate.rows != up.rows || op.activation.width != gate.rows) return false;
    out->up_weight = up.weight;
    gate.out = op.activation.out;
    --out->num_parts;
  }
  return true;
}

}  // namespace

void GpuKernels::NormProducts(LaunchKey key, const NormProductsArgs& op) {
  FloatProducts products;
  if (Describe(op, &products) && CanFuse(products, num_sms_)) {
    return Check(MultiplyFloats(stream_, num_sms_, products));
  }
  Norm(key, op.norm);
  for (int p = 0; p < op.num_products; ++p) {
    Projection(key, op.products[static_cast<size_t>(p)]);
  }
  if (op.activated) Activation(key, op.activation);
}

void GpuKernels::ProductAdd(LaunchKey key, const ProductAddArgs& op) {
  if (IsFloat(op.product)) {
    FloatProducts products;
    products.live = op.product.rows.live;
    products.capacity = op.product.rows.capacity;
    products.x = static_cast<const float*>(op.product.x.data);
    products.cols = op.product.weight.cols;
    products.dtype = op.product.weight.dtype;
    products.parts[0] = PartOf(op.product);
    products.parts[0].out = op.add.out;
    products.num_parts = 1;
    products.residual = op.add.residual;
    return Check(MultiplyFloats(stream_, num_sms_, products));
  }
  Projection(key, op.product);
  ResidualAdd(key, op.add);
}

}  // namespace signet::backend::gpu
