#include "backend/gpu/sm90_tensor_map.h"

#include <cuda.h>

#include <cstring>

namespace signet::backend::gpu {
namespace {

static_assert(sizeof(TensorMap) == sizeof(CUtensorMap) &&
              alignof(TensorMap) >= alignof(CUtensorMap));

using Encode = decltype(&cuTensorMapEncodeTiled);

// By look-up: the program starts where there is no driver, too.
Encode FindEncode() {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result = {};
#if CUDART_VERSION >= 12050
  const Status status = cudaGetDriverEntryPointByVersion(
      "cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result);
#else
  const Status status = cudaGetDriverEntryPoint(
      "cuTensorMapEncodeTiled", &found, cudaEnableDefault, &result);
#endif
  if (status != kOk || result != cudaDriverEntryPointSuccess) return nullptr;
  return reinterpret_cast<Encode>(found);
}

}  // namespace

Status MakeTensorMap(const BF16Matrices& matrices, int box_rows,
                     TensorMap* map) {
  const Encode encode = FindEncode();
  if (encode == nullptr) return cudaErrorNotSupported;
  constexpr cuuint32_t kBoxCols = 64;
  const auto row_bytes = static_cast<cuuint64_t>(matrices.cols) * 2;
  const auto rows = static_cast<cuuint64_t>(matrices.rows);
  // Of one matrix any distance will do.
  const cuuint64_t apart = matrices.count > 1
                               ? static_cast<cuuint64_t>(matrices.apart)
                               : row_bytes * rows;
  const cuuint64_t sizes[3] = {static_cast<cuuint64_t>(matrices.cols), rows,
                               static_cast<cuuint64_t>(matrices.count)};
  const cuuint64_t strides[2] = {row_bytes, apart};
  const cuuint32_t box[3] = {kBoxCols, static_cast<cuuint32_t>(box_rows), 1};
  const cuuint32_t steps[3] = {1, 1, 1};
  CUtensorMap encoded = {};
  const CUresult result = encode(
      &encoded, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3,
      const_cast<void*>(matrices.data), sizes, strides, box, steps,
      CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
      CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) return cudaErrorInvalidValue;
  std::memcpy(map, &encoded, sizeof(*map));
  return kOk;
}

}  // namespace signet::backend::gpu
