// Products of any shape, alignment and dtype on the plain cores: tiles through
// shared memory, fp32 fused multiply-adds. The sum over cols runs in chunks of
// 32, each summed by itself first, whatever the shape.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "backend/gpu/product_operands.cuh"
#include "backend/gpu/product_operands.h"
#include "backend/gpu/stored.cuh"
#include "backend/gpu/vendor.h"

namespace signet::backend::gpu {
namespace {

constexpr int kRows = 32;     // of x, a block
constexpr int kColumns = 64;  // of weights, a block
constexpr int kChunk = 32;    // elements of cols
constexpr int kThreads = 256;
// A thread has rows r, r + 16 and columns c, c + 16, c + 32, c + 48.
constexpr int kThreadRows = 2;
constexpr int kThreadColumns = 4;
constexpr int kGrid = 16;
static_assert(kGrid * kThreadRows == kRows &&
              kGrid * kThreadColumns == kColumns && kGrid * kGrid == kThreads);

/// The weight as it meets an input of type X.
template <typename X, typename W>
__device__ float WeightFor(W weight) {
  const float value = ToFloat(weight);
  if constexpr (std::is_same_v<X, __nv_bfloat16> &&
                !std::is_same_v<W, __nv_bfloat16>) {
    return __bfloat162float(__float2bfloat16_rn(value));
  } else {
    return value;
  }
}

template <typename X, typename W>
__global__ void __launch_bounds__(kThreads)
    PortableKernel(const __grid_constant__ Operands op) {
  DependencyWait();
  __shared__ int64_t input_row[kRows];
  __shared__ float xs[kRows][kChunk + 1];
  __shared__ float ws[kColumns][kChunk + 1];
  const int thread = static_cast<int>(threadIdx.x);
  const int dense_rows = op.matrix == Matrix::kDense ? DenseRows(op) : 0;
  Panel panel;
  if (!FindPanel(op, blockIdx.x, dense_rows, kRows, kColumns, &panel)) return;
  if (thread < kRows) input_row[thread] = InputRow(op, panel, thread);
  __syncthreads();

  const X* x = static_cast<const X*>(op.x);
  const W* w =
      static_cast<const W*>(panel.matrix) + panel.first_column * op.cols;
  const int row = thread / kGrid;
  const int column = thread % kGrid;
  float sums[kThreadRows][kThreadColumns] = {};
  for (int64_t begin = 0; begin < op.cols; begin += kChunk) {
    const int64_t k = begin + thread % kChunk;
    for (int r = thread / kChunk; r < kRows; r += kThreads / kChunk) {
      const bool valid = k < op.cols && input_row[r] >= 0;
      xs[r][thread % kChunk] =
          valid ? ToFloat(x[input_row[r] * op.cols + k]) : 0.0f;
    }
    for (int c = thread / kChunk; c < kColumns; c += kThreads / kChunk) {
      const bool valid = k < op.cols && c < panel.columns;
      ws[c][thread % kChunk] =
          valid ? WeightFor<X>(w[int64_t{c} * op.cols + k]) : 0.0f;
    }
    __syncthreads();
    float chunk[kThreadRows][kThreadColumns] = {};
#pragma unroll 8
    for (int i = 0; i < kChunk; ++i) {
#pragma unroll
      for (int r = 0; r < kThreadRows; ++r) {
#pragma unroll
        for (int c = 0; c < kThreadColumns; ++c) {
          chunk[r][c] = __fmaf_rn(xs[row + r * kGrid][i],
                                  ws[column + c * kGrid][i], chunk[r][c]);
        }
      }
    }
#pragma unroll
    for (int r = 0; r < kThreadRows; ++r) {
#pragma unroll
      for (int c = 0; c < kThreadColumns; ++c) {
        sums[r][c] = __fadd_rn(sums[r][c], chunk[r][c]);
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int r = 0; r < kThreadRows; ++r) {
    if (input_row[row + r * kGrid] < 0) continue;
    float* out =
        panel.out + (panel.first_row + row + r * kGrid) * panel.out_stride;
#pragma unroll
    for (int c = 0; c < kThreadColumns; ++c) {
      if (column + c * kGrid < panel.columns) {
        out[column + c * kGrid] = sums[r][c];
      }
    }
  }
}

}  // namespace

Status MultiplyPortable(Stream stream, tensor::DType x_dtype,
                        tensor::DType weight_dtype, const Operands& operands) {
  const int64_t items = ItemsOf(operands, kRows, kColumns);
  if (items == 0) return kOk;
  Status status = kOk;
  WithElement(weight_dtype, [&](const auto* element) {
    using W = std::remove_cvref_t<decltype(*element)>;
    const auto kernel = x_dtype == tensor::DType::kBF16
                            ? PortableKernel<__nv_bfloat16, W>
                            : PortableKernel<float, W>;
    status = Launch(kernel, dim3(static_cast<unsigned>(items)), dim3(kThreads),
                    0, stream, operands);
  });
  return status;
}

}  // namespace signet::backend::gpu
