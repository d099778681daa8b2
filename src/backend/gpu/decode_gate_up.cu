#include <algorithm>

#include "backend/gpu/decode_gate_up.cuh"
#include "backend/gpu/decode_gate_up.h"
#include "backend/gpu/float_config.h"

namespace signet::backend::gpu {
namespace {

// All of a multiprocessor: its warps route together, and ask for weights
// together, since shared memory has to wait behind such loads.
constexpr int kThreads = 512;
constexpr int kMaxRows = 8;
static_assert(kMaxRows * kRouteTopK <= kMaxListedSlots);
constexpr int64_t kMaxSharedBytes = int64_t{80} << 10;

struct SharedRows {
  const char* gate;  // [width, H]
  const char* up;    // [width, H]
  float* out;        // [width]
  int width;         // 0: none
};

struct GateUpArgs {
  const int32_t* live;
  const float* scores;  // [B, E]
  const float* x;       // [B, H]
  RouteTable route;
  GateUpRows rows;
  SharedRows shared;
};

/// A row of the shared expert's gate with the same of up, for the warps that do
/// not route.
struct SharedItems {
  const GateUpArgs& args;
  const float4* input;
  int item;
  int stride;

  __device__ __forceinline__ SharedItems(const GateUpArgs& op,
                                         const float4* planes)
      : args(op),
        input(planes),
        item((static_cast<int>(threadIdx.x / kWarpSize) - kTeamWarps) *
                 static_cast<int>(gridDim.x) +
             static_cast<int>(blockIdx.x)),
        stride(static_cast<int>(gridDim.x) * kTeamWarps) {}

  __device__ __forceinline__ bool IsOver() const {
    return item >= args.shared.width;
  }
  __device__ __forceinline__ bool Advance() {
    item += stride;
    return !IsOver();
  }
  __device__ __forceinline__ void Point(const char* (&rows)[2]) const {
    const int64_t at =
        int64_t{16} * item * args.rows.octets + LaneOfThread() * 16;
    rows[0] = args.shared.gate + at;
    rows[1] = args.shared.up + at;
  }
  __device__ __forceinline__ void Begin() const {}
  __device__ __forceinline__ PlanesInput Input() const {
    return {input, args.rows.octets};
  }
  __device__ __forceinline__ void Finish(float value) const {
    const float up = __shfl_down_sync(kAllLanes, value, kWarpSize / 2);
    if (LaneOfThread() == 0) {
      args.shared.out[item] = __fmul_rn(Silu(value), up);
    }
  }
};

/// The input rows as planes, by the threads that do not route. By copies: a
/// load to registers would wait for the weights asked for before it.
__device__ __forceinline__ void BringInputs(const GateUpArgs& args, int live,
                                            float4* input) {
  const int octets = args.rows.octets;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x) - kTeamThreads; i < live * octets;
       i += kThreads - kTeamThreads) {
    const int token = i / octets;
    float4* to = input + token * octets + i;
    CopyToShared(args.x + int64_t{8} * i, to);
    CopyToShared(args.x + int64_t{8} * i + 4, to + octets);
  }
  WaitForCopies();
}

/// Half of a block routes; the other half brings the input and, of one token,
/// multiplies the shared expert's rows. Then all multiply the selected ones'.
template <int kTokens>
__global__ void __launch_bounds__(kThreads, 1)
    GateUpKernel(const __grid_constant__ GateUpArgs args) {
  extern __shared__ float4 input[];  // two planes a token
  __shared__ Routed<kTokens> routed;
  const int thread = static_cast<int>(threadIdx.x);
  const bool routes = thread < kTeamThreads;
  const int octets_of_row = args.rows.octets;
  const char* rows[2];
  RowOctets<TwoRows> octets;
  SharedItems shared(args, input);
  const bool any_shared = kTokens == 1 && !routes && !shared.IsOver();
  // Older than the launch before.
  const int live = __ldcg(args.live);
  bool is_here = false;
  if (routes) {
    is_here = thread < args.route.num_experts &&
              args.route.global_to_local[thread] >= 0;
    BeginRoute(routed);
  } else {
    FillTable(args.route, routed);
    if (any_shared) {
      shared.Point(rows);
      LoadStep<TwoRows>(rows, octets);
    }
  }
  __syncthreads();
  WaitForEarlier();

  if (live <= 0) return;
  if (routes) {
    SelectInWarps(
        args.route, live,
        [&](int token, int id) {
          return __ldcg(args.scores + token * args.route.num_experts + id);
        },
        is_here, routed);
  } else {
    BringInputs(args, live, input);
  }
  __syncthreads();
  if (thread < kSelectThreads<kTokens>) SelectOfWarps(args.route, live, routed);
  if constexpr (kTokens > 1) __syncthreads();
  if (thread < kSelectThreads<kTokens>) {
    __syncwarp();
    ListSlots(args.route, routed);
  } else if (any_shared) {
    MultiplyGroupsOfRows<TwoRows>(shared, octets_of_row, rows, octets);
  }
  __syncthreads();

  // The last warp keeps the route and multiplies nothing.
  const int warps = WarpsOfGrid() - 1;
  const int warp = WarpOfGrid();
  if (warp == warps) {
    KeepRoute(args.route, live * args.route.top_k, routed);
    LetNextStart();
    return;
  }
  GateUpItems items(args.rows, routed.slots, routed.count, warp, warps, input);
  if (!items.IsOver()) {
    items.Point(rows);
    LoadStep<TwoRows>(rows, octets);
    // The launch after this one may read the route as it starts: not before
    // that is kept.
    if (blockIdx.x + 1 < gridDim.x) LetNextStart();
    MultiplyGroupsOfRows<TwoRows>(items, octets_of_row, rows, octets);
  }
}

bool IsAligned(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % 16 == 0;
}

size_t InputBytes(const RouteGateUpArgs& args) {
  return static_cast<size_t>(args.route.rows.capacity *
                             args.gate_up.table.hidden) *
         sizeof(float);
}

}  // namespace

bool TakesGateUp(const RouteGateUpArgs& args) {
  const ExpertTableView& table = args.gate_up.table;
  const int64_t capacity = args.route.rows.capacity;
  return table.gate_dtype == tensor::DType::kBF16 &&
         table.up_dtype == tensor::DType::kBF16 && capacity <= kMaxRows &&
         args.route.top_k <= kRouteTopK && args.route.renormalise &&
         table.num_experts <= kMaxRouteExperts && table.hidden > 0 &&
         table.hidden % TwoRows::kElements == 0 &&
         ExpertDotWarps(table.hidden) == 1 && table.width > 0 &&
         IsAligned(args.gate_up.x) &&
         static_cast<int64_t>(InputBytes(args)) <= kMaxSharedBytes;
}

bool TakesSharedGateUp(const RouteGateUpArgs& args,
                       const SharedGateUp& shared) {
  return TakesGateUp(args) && args.route.rows.capacity == 1 &&
         IsAligned(shared.gate) && IsAligned(shared.up);
}

Status RunGateUp(Stream stream, int num_sms, const RouteGateUpArgs& op,
                 const SharedGateUp& shared, const DownSlots& down) {
  if (op.route.rows.capacity == 0) return kOk;
  GateUpArgs args = {};
  args.live = op.route.rows.live;
  args.scores = op.route.scores;
  args.x = op.gate_up.x;
  args.route = RouteTableOf(op, down);
  args.rows = GateUpRowsOf(op);
  args.shared = {static_cast<const char*>(shared.gate),
                 static_cast<const char*>(shared.up), shared.out,
                 static_cast<int>(shared.width)};
  const size_t bytes = InputBytes(op);
  auto* kernel =
      op.route.rows.capacity == 1 ? &GateUpKernel<1> : &GateUpKernel<kMaxRows>;
  if (bytes > (size_t{24} << 10)) {  // beside the static part
    const Status status = cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
        static_cast<int>(bytes));
    if (status != kOk) return status;
  }
  return LaunchRows(op.route.rows.capacity, kernel,
                    dim3(static_cast<unsigned>(num_sms)), dim3(kThreads), bytes,
                    stream, args);
}

}  // namespace signet::backend::gpu
