// Products of f32 inputs: the choice of kernel and its arguments.

#include <cstdint>

#include "backend/gpu/decode_products.h"
#include "backend/gpu/few_rows.h"
#include "backend/gpu/float_config.h"
#include "backend/gpu/float_products.cuh"
#include "backend/gpu/float_products.h"
#include "backend/gpu/many_rows.h"
#include "backend/gpu/product.h"

namespace signet::backend::gpu {
namespace {

bool Aligned(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % 16 == 0;
}

FloatDesc Describe(const FloatProducts& products, int num_sms) {
  FloatDesc desc;
  desc.capacity = products.capacity;
  desc.last_row = products.last_row;
  desc.cols = products.cols;
  desc.num_products = products.num_parts;
  desc.paired = products.up_weight != nullptr;
  desc.norm = products.norm;
  desc.num_sms = num_sms;
  desc.vectors = products.dtype == tensor::DType::kBF16 &&
                 products.cols % 8 == 0 && Aligned(products.x) &&
                 Aligned(products.up_weight) && Aligned(products.normed);
  for (int p = 0; p < products.num_parts; ++p) {
    const FloatPart& part = products.parts[static_cast<size_t>(p)];
    desc.rows[static_cast<size_t>(p)] = part.rows;
    desc.vectors = desc.vectors && Aligned(part.weight);
  }
  return desc;
}

}  // namespace

bool CanFuse(const FloatProducts& products, int num_sms) {
  if (TakesOneRow(products) || TakesFewRows(products)) return true;
  // Each of them alone may be what these are not, in another order.
  if (IsFewRows(products.capacity, products.cols)) return false;
  return FusesFloat(Describe(products, num_sms));
}

Status MultiplyFloats(Stream stream, int num_sms,
                      const FloatProducts& products) {
  if (TakesOneRow(products)) return MultiplyOneRow(stream, num_sms, products);
  if (TakesFewRows(products)) return MultiplyFewRows(stream, num_sms, products);
  if (TakesManyRows(products)) return MultiplyManyRows(stream, products);
  const FloatDesc desc = Describe(products, num_sms);
  const FloatConfig config = ChooseFloat(desc);
  if (config.blocks == 0 || config.batches == 0) return kOk;
  FloatKernelArgs args = {};
  args.live = products.live;
  args.capacity = products.capacity;
  args.x = products.x;
  args.cols = products.cols;
  args.row_bytes =
      products.cols * static_cast<int64_t>(tensor::SizeOf(products.dtype));
  args.octets = static_cast<int>((products.cols + 7) / 8);
  args.last_row = products.last_row;
  args.prefetch = config.batches == 1;
  args.dtype = products.dtype;
  args.norm = products.norm;
  args.norm_vectors = products.norm_weight.dtype == tensor::DType::kBF16 &&
                      Aligned(products.norm_weight.data);
  args.norm_dtype = products.norm_weight.dtype;
  args.norm_weight = products.norm_weight.data;
  args.norm_offset = products.norm_offset;
  args.norm_eps = products.norm_eps;
  args.normed = products.normed;
  args.up_weight = static_cast<const char*>(products.up_weight);
  args.residual = products.residual;
  args.num_parts = products.num_parts;
  int64_t groups = 0;
  for (int p = 0; p < products.num_parts; ++p) {
    const FloatPart& part = products.parts[static_cast<size_t>(p)];
    args.parts[p] = {static_cast<const char*>(part.weight), part.out,
                     static_cast<int>(part.rows), static_cast<int>(groups)};
    groups += GroupsOf(desc, p, config.rows);
  }
  args.num_groups = static_cast<int>(groups);
  switch (config.path) {
    case FloatPath::kShared:
      return config.dot_warps == 1 ? RunSharedShort(stream, config, args)
                                   : RunShared(stream, config, args);
    case FloatPath::kStreamed:  // only long rows are
      return RunStreamed(stream, config, args);
    case FloatPath::kPortable:
      break;
  }
  return RunPortable(stream, config, args);
}

Status MultiplyFloat(Stream stream, int num_sms, const Product& product) {
  FloatProducts products;
  products.live = product.live;
  products.capacity = product.capacity;
  products.last_row = product.last_row;
  products.x = static_cast<const float*>(product.x);
  products.cols = product.weight.cols;
  products.dtype = product.weight.dtype;
  products.parts[0] = {product.weight.data, product.weight.rows, product.out};
  products.num_parts = 1;
  return MultiplyFloats(stream, num_sms, products);
}

}  // namespace signet::backend::gpu
