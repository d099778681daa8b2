#include <algorithm>

#include "backend/gpu/decode_products.h"
#include "backend/gpu/math.cuh"
#include "backend/gpu/row_dot.cuh"
#include "backend/gpu/row_input.cuh"

namespace signet::backend::gpu {
namespace {

constexpr int kBlocksPerSm = 2;
// The input of a block, beside that of the other on its multiprocessor.
constexpr int64_t kMaxInputBytes = int64_t{112} << 10;

struct Part {
  const char* weight;
  float* out;
  int rows;
  int first_group;
};

struct OneRowArgs {
  const int32_t* live;
  const float* x;
  int octets;             // of a row
  RowNorm norm;           // weight null: none
  const char* up_weight;  // of the last part, which is gate, or null
  const float* residual;  // of the only part, or null
  int num_parts;
  int num_groups;
  Part parts[kMaxFusedProducts];
};

/// A group of rows of a part; of a pair, half of them gate and half of them up.
template <typename Step>
struct Groups {
  static constexpr int kHalf = Step::kRows / 2;

  const OneRowArgs& args;
  const float4* input;
  int index;
  int stride;
  int part;
  int row;
  bool pair;
  float residual = 0.0f;

  __device__ __forceinline__ Groups(const OneRowArgs& op, const float4* planes)
      : args(op),
        input(planes),
        index(WarpOfGrid()),
        stride(WarpsOfGrid()),
        part(0) {
    Locate();
  }

  __device__ __forceinline__ bool IsOver() const {
    return index >= args.num_groups;
  }
  __device__ __forceinline__ bool Advance() {
    index += stride;
    if (IsOver()) return false;
    Locate();
    return true;
  }
  /// Rows past the last of a part repeat it.
  __device__ __forceinline__ void Point(
      const char* (&rows)[Step::kRows]) const {
    const Part& matrix = args.parts[part];
    const char* low = matrix.weight + LaneOfThread() * 16;
    const char* high = pair ? args.up_weight + LaneOfThread() * 16 : low;
#pragma unroll
    for (int r = 0; r < Step::kRows; ++r) {
      const int at = min(row + (pair ? r % kHalf : r), matrix.rows - 1);
      rows[r] = (r < kHalf ? low : high) +
                static_cast<int64_t>(at) * args.octets * 16;
    }
  }
  __device__ __forceinline__ void Begin() {
    if (args.residual != nullptr && IsWritten()) {
      residual = __ldcg(args.residual + RowOfLane());
    }
  }
  __device__ __forceinline__ PlanesInput Input() const {
    return {input, args.octets};
  }
  __device__ __forceinline__ void Finish(float value) const {
    const float up = __shfl_down_sync(kAllLanes, value, kWarpSize / 2);
    if (!IsWritten()) return;
    float result = value;
    if (pair) result = __fmul_rn(Silu(value), up);
    if (args.residual != nullptr) result = __fadd_rn(residual, value);
    args.parts[part].out[RowOfLane()] = result;
  }

 private:
  static constexpr int kLanesPerRow = kWarpSize / Step::kRows;

  __device__ __forceinline__ int RowOfLane() const {
    return row + LaneOfThread() / kLanesPerRow;
  }
  /// Whether this lane writes a row.
  __device__ __forceinline__ bool IsWritten() const {
    const int lane = LaneOfThread();
    return lane % kLanesPerRow == 0 && RowOfLane() < args.parts[part].rows &&
           (!pair || lane / kLanesPerRow < kHalf);
  }
  __device__ __forceinline__ void Locate() {
#pragma unroll 1
    while (part + 1 < args.num_parts &&
           index >= args.parts[part + 1].first_group) {
      ++part;
    }
    pair = args.up_weight != nullptr && part + 1 == args.num_parts;
    row = (index - args.parts[part].first_group) * (pair ? kHalf : Step::kRows);
  }
};

template <typename Step>
__global__ void __launch_bounds__(kTeamThreads, kBlocksPerSm)
    OneRowKernel(const __grid_constant__ OneRowArgs args) {
  extern __shared__ float4 planes[];
  Groups<Step> groups(args, planes);
  const bool any = !groups.IsOver();
  const char* rows[Step::kRows];
  RowOctets<Step> octets;
  if (any) {
    groups.Point(rows);
    LoadStep<Step>(rows, octets);
  }
  const NormStart norm(args.norm, args.octets);
  DependencyWait();

  const int live = __ldcg(args.live);
  BringRow(args.x, args.octets, args.norm, norm, blockIdx.x == 0 && live > 0,
           planes);
  if (any && live > 0) {
    MultiplyGroupsOfRows<Step>(groups, args.octets, rows, octets);
  }
}

template <typename Step>
Status Run(Stream stream, int num_sms, const FloatProducts& products) {
  OneRowArgs args = {};
  args.live = products.live;
  args.x = products.x;
  args.octets = static_cast<int>(products.cols / 8);
  if (products.norm) {
    args.norm = {static_cast<const uint4*>(products.norm_weight.data),
                 products.norm_offset, products.norm_eps, products.normed};
  }
  args.up_weight = static_cast<const char*>(products.up_weight);
  args.residual = products.residual;
  args.num_parts = products.num_parts;
  int64_t groups = 0;
  for (int p = 0; p < products.num_parts; ++p) {
    const FloatPart& part = products.parts[static_cast<size_t>(p)];
    const bool pair =
        products.up_weight != nullptr && p + 1 == products.num_parts;
    const int64_t step = pair ? Step::kRows / 2 : Step::kRows;
    args.parts[p] = {static_cast<const char*>(part.weight), part.out,
                     static_cast<int>(part.rows), static_cast<int>(groups)};
    groups += (part.rows + step - 1) / step;
  }
  args.num_groups = static_cast<int>(groups);
  const int64_t blocks =
      std::min<int64_t>(static_cast<int64_t>(num_sms) * kBlocksPerSm, groups);
  const auto bytes = static_cast<size_t>(args.octets) * 2 * sizeof(float4);
  auto* kernel = &OneRowKernel<Step>;
  if (bytes > (size_t{46} << 10)) {  // beside the sums of the norm
    const Status status = cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
        static_cast<int>(bytes));
    if (status != kOk) return status;
  }
  return LaunchRows(products.capacity, kernel,
                    dim3(static_cast<unsigned>(blocks)), dim3(kTeamThreads),
                    bytes, stream, args);
}

bool IsAligned(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % 16 == 0;
}

}  // namespace

bool TakesOneRow(const FloatProducts& products) {
  if (products.dtype != tensor::DType::kBF16 || products.capacity != 1 ||
      products.cols == 0 || products.cols % FourRows::kElements != 0 ||
      products.cols * 4 > kMaxInputBytes || !IsAligned(products.x) ||
      !IsAligned(products.up_weight) || !IsAligned(products.normed)) {
    return false;
  }
  if (products.norm && (products.norm_weight.dtype != tensor::DType::kBF16 ||
                        !IsAligned(products.norm_weight.data))) {
    return false;
  }
  for (int p = 0; p < products.num_parts; ++p) {
    const FloatPart& part = products.parts[static_cast<size_t>(p)];
    if (part.rows == 0 || !IsAligned(part.weight)) return false;
  }
  return products.num_parts > 0;
}

Status MultiplyOneRow(Stream stream, int num_sms,
                      const FloatProducts& products) {
  return products.cols % TwoRows::kElements == 0
             ? Run<TwoRows>(stream, num_sms, products)
             : Run<FourRows>(stream, num_sms, products);
}

}  // namespace signet::backend::gpu
