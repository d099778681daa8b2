// Attention of a prefill over a bf16 cache by warpgroups: queries and weights
// are rounded to bf16, sums, maxima and totals are f32 (Shah et al.,
// "FlashAttention-3", 2024). A block takes kFlashPairs pairs of a row and a
// query head of one kv head. One warpgroup copies tiles of 64 keys and of their
// values through shared memory, two multiply, 64 pairs each: the scores of a
// tile and the values of the one before are asked for together, and weights are
// made while the values are summed.
//
// Tiles begin at multiples of 64 from position 0 and what a row does not see
// adds exact zeros, so its bits depend on its own position alone.

#include <cstdint>

#include "backend/gpu/attention_rows.cuh"
#include "backend/gpu/attention_split.cuh"
#include "backend/gpu/sm90_attention_tiles.cuh"
#include "backend/gpu/sm90_attention_weights.cuh"
#include "backend/gpu/sm90_wgmma.cuh"

namespace signet::backend::gpu {
namespace {

// One warpgroup's 64 pairs.
template <int kDim>
class Multiplier {
 public:
  __device__ Multiplier(const AttentionArgs& args, const FlashRows& rows,
                        int last, uint32_t queries, uint32_t stages,
                        FlashBarriers<kDim>& barriers, int group)
      : args_(args),
        rows_(rows),
        barriers_(barriers),
        group_(group),
        last_(last),
        thread_(static_cast<int>(threadIdx.x) % kWarpgroupThreads),
        to_(queries),
        query_(OperandAt(
            queries +
            static_cast<uint32_t>(group * kWarpgroupRows * kFlashRowBytes))),
        key_(OperandAt(stages)),
        value_(TurnedAt(stages, T::kPlaceBytes)) {}

  __device__ __forceinline__ void Run() {
    StoreQueries();
    const int first_position = PositionOf(group_ * kWarpgroupRows);
    RowWeights rows(args_.scale, PositionOf(PairOf(0)), PositionOf(PairOf(1)));
    float sums[T::kPlaces][32] = {};
    RoundedWeights weights;
    {
      float scores[32];
      AwaitStage(stage_);
      Score(stage_, scores);
      WaitProducts<0>();
      Pin(scores);
      Leave(stage_);
      stage_.Advance();
      rows.Weigh(0, kFlashKeys - 1 > first_position, scores);
      weights.Set(scores);
    }
#pragma unroll 1
    for (int first = kFlashKeys; first <= last_; first += kFlashKeys) {
      float scores[32];
      const FlashStage<kDim> keys = stage_;
      AwaitStage(keys);
      Score(keys, scores);
      stage_.Advance();
      const FlashStage<kDim> values = stage_;
      AwaitStage(values);
      AddValues(values, weights, sums);
      stage_.Advance();
      WaitProducts<1>();
      Pin(scores);
      Leave(keys);
      const bool scaled =
          rows.Weigh(first, first + kFlashKeys - 1 > first_position, scores);
      // Weights are made while the values are summed: without a branch that
      // waits for them the assembler moves the wait for the sums before them.
      Pin(scores);
      if (rows.Broken()) asm volatile("nanosleep.u32 0;" ::: "memory");
      WaitProducts<0>();
#pragma unroll
      for (float(&place)[32] : sums) Pin(place);
      Leave(values);
      if (scaled) Scale(rows, sums);
      weights.Set(scores);
    }
    Gates gates;
    LoadGates(0, gates);
    AwaitStage(stage_);
    AddValues(stage_, weights, sums);
    WaitProducts<0>();
#pragma unroll
    for (float(&place)[32] : sums) Pin(place);
    Store(rows, sums, gates);
  }

 private:
  using T = FlashTiles<kDim>;
  using Sums = float[T::kPlaces][32];

  // The pair of this thread's row h.
  __device__ __forceinline__ int PairOf(int h) const {
    return group_ * kWarpgroupRows + thread_ / kWarpSize * 16 +
           thread_ % kWarpSize / 4 + 8 * h;
  }
  __device__ __forceinline__ int32_t PositionOf(int pair) const {
    return args_.rows.position[rows_.first + LiveRowOf(rows_, pair)];
  }

  // The warpgroup's own queries; zeros for pairs past the live rows.
  __device__ __forceinline__ void StoreQueries() const {
    const int chunk = thread_ % T::kChunks;
#pragma unroll 4
    for (int i = thread_ / T::kChunks; i < kWarpgroupRows; i += T::kCopyRows) {
      const int m = group_ * kWarpgroupRows + i;
      const int row = m / rows_.group;
      uint4 packed = make_uint4(0, 0, 0, 0);
      if (row < rows_.count) {
        const int64_t head = rows_.first_head + (m - row * rows_.group);
        const auto* q = reinterpret_cast<const float4*>(
            args_.q + ((rows_.first + row) * args_.heads + head) * kDim +
            chunk * 8);
        const float4 a = q[0];
        const float4 b = q[1];
        packed = make_uint4(PackBF16(a.x, a.y), PackBF16(a.z, a.w),
                            PackBF16(b.x, b.y), PackBF16(b.z, b.w));
      }
      StoreShared16(to_ + FlashChunkAt(m, chunk, T::kQueryPlaceBytes), packed);
    }
    ShowCopies();
    WaitAtBarrier(1 + group_, kWarpgroupThreads);
  }
  __device__ static __forceinline__ void StoreShared16(uint32_t to,
                                                       const uint4& v) {
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(v.x),
                 "r"(v.y), "r"(v.z), "r"(v.w)
                 : "memory");
  }

  __device__ __forceinline__ void AwaitStage(
      const FlashStage<kDim>& stage) const {
    barriers_.full[stage.index].Await(stage.parity);
    ShowCopies();
  }
  __device__ __forceinline__ void Leave(const FlashStage<kDim>& stage) const {
    if (thread_ % kWarpSize == 0) barriers_.empty[stage.index].Arrive();
  }
  __device__ static __forceinline__ uint64_t
  Offset(const FlashStage<kDim>& stage) {
    return static_cast<uint64_t>(stage.index * T::kStageBytes >> 4);
  }

  // Asks for the scores of the keys in a stage.
  __device__ __forceinline__ void Score(const FlashStage<kDim>& stage,
                                        float (&scores)[32]) const {
    constexpr int kSteps = kFlashPlaceDims / kWarpgroupStep;
    const uint64_t keys = key_ + Offset(stage);
    BeginProducts();
#pragma unroll
    for (int i = 0; i < T::kPlaces * kSteps; ++i) {
      const auto place = static_cast<uint64_t>(i / kSteps);
      const int along = i % kSteps * kWarpgroupStep;
      const uint64_t a =
          Along(query_ + place * (T::kQueryPlaceBytes >> 4), along);
      const uint64_t b = Along(keys + place * (T::kPlaceBytes >> 4), along);
      if (i == 0) {
        Multiply64Alone(scores, a, b);
      } else {
        Multiply64(scores, a, b);
      }
    }
    EndProducts();
  }

  // Asks for the sums of the values in a stage.
  __device__ __forceinline__ void AddValues(const FlashStage<kDim>& stage,
                                            const RoundedWeights& weights,
                                            Sums& sums) const {
    const uint64_t values = value_ + Offset(stage);
    BeginProducts();
#pragma unroll
    for (int k = 0; k < kFlashKeys / kWarpgroupStep; ++k) {
      const uint64_t b = Down(values, k * kWarpgroupStep);
      if constexpr (kDim == 256) {
        MultiplyTurned256(sums[0], sums[1], sums[2], sums[3], weights.step[k],
                          b);
      } else {
        MultiplyTurned128(sums[0], sums[1], weights.step[k], b);
      }
    }
    EndProducts();
  }

  __device__ static __forceinline__ void Scale(const RowWeights& rows,
                                               Sums& sums) {
#pragma unroll
    for (float(&place)[32] : sums) {
#pragma unroll
      for (int i = 0; i < 32; ++i) {
        place[i] = __fmul_rn(place[i], rows.Factor(i / 2 % 2));
      }
    }
  }

  // Gates of kGatePairs pairs of columns of a row; loads of many are on their
  // way together, stores of other rows come between.
  static constexpr int kGatePairs = 4;
  static constexpr int kGateParts = kDim / 8 / kGatePairs;  // of a row
  using Gates = float2[kGatePairs];

  __device__ __forceinline__ int64_t HeadOf(int pair) const {
    return rows_.first_head + pair - pair / rows_.group * rows_.group;
  }
  __device__ __forceinline__ void LoadGates(int part, Gates& gates) const {
    const int pair = PairOf(part / kGateParts);
    const int row = LiveRowOf(rows_, pair);
    const float* gate = GateOf(args_, rows_.first + row, HeadOf(pair)) +
                        part % kGateParts * kGatePairs * 8 + thread_ % 4 * 2;
#pragma unroll
    for (int i = 0; i < kGatePairs; ++i) {
      gates[i] = __ldcg(reinterpret_cast<const float2*>(gate + 8 * i));
    }
  }
  // `gates`: those of part 0.
  __device__ __forceinline__ void Store(const RowWeights& rows,
                                        const Sums& sums, Gates& gates) const {
    const float inverse[2] = {__fdiv_rn(1.0f, rows.Total(0)),
                              __fdiv_rn(1.0f, rows.Total(1))};
#pragma unroll
    for (int part = 0; part < 2 * kGateParts; ++part) {
      Gates next;
      if (part + 1 < 2 * kGateParts) LoadGates(part + 1, next);
      const int h = part / kGateParts;
      const int n = part % kGateParts * kGatePairs;
      const int pair = PairOf(h);
      const int row = pair / rows_.group;
      float* out = args_.out +
                   ((rows_.first + row) * args_.heads + HeadOf(pair)) * kDim +
                   n * 8 + thread_ % 4 * 2;
#pragma unroll
      for (int i = 0; i < kGatePairs; ++i) {
        const float* sum = sums[(n + i) / 8] + (n + i) % 8 * 4 + 2 * h;
        const float2 of =
            make_float2(GatedBy(sum[0], inverse[h], SigmoidOfGate(gates[i].x)),
                        GatedBy(sum[1], inverse[h], SigmoidOfGate(gates[i].y)));
        if (row < rows_.count) {
          __stcg(reinterpret_cast<float2*>(out + 8 * i), of);
        }
        gates[i] = next[i];
      }
    }
  }

  const AttentionArgs& args_;
  const FlashRows& rows_;
  FlashBarriers<kDim>& barriers_;
  const int group_;
  const int last_;
  const int thread_;
  const uint32_t to_;
  const uint64_t query_;
  const uint64_t key_;
  const uint64_t value_;
  FlashStage<kDim> stage_;
};

// Of a thread, out of the 168 that three warpgroups begin with.
constexpr int kCopierRegisters = 40;
constexpr int kMultiplierRegisters = 232;
static_assert(kCopierRegisters + 2 * kMultiplierRegisters == 3 * 168);

template <int kDim>
__global__ void __launch_bounds__(kFlashThreads, 1)
    WarpgroupFlashKernel(const __grid_constant__ AttentionArgs args) {
  using T = FlashTiles<kDim>;
  extern __shared__ unsigned char shared[];
  __shared__ FlashBarriers<kDim> barriers;
  const uint32_t queries =
      (SharedAddress(shared) + T::kAlign - 1) / T::kAlign * T::kAlign;
  const uint32_t stages = queries + T::kQueryBytes;
  if (threadIdx.x == 0) barriers.Open();
  DependencyWait();
  // Kept in shared memory: registers are short.
  __shared__ FlashRows rows;
  FlashRows found;
  if (!FindFlashRows(args, kFlashPairs, found)) return;
  if (threadIdx.x == 0) rows = found;
  __syncthreads();

  const int group = static_cast<int>(threadIdx.x) / kWarpgroupThreads;
  if (group == 2) {
    GiveRegisters<kCopierRegisters>();
    FlashCopier<kDim> copier(args.cache, found, blockIdx.x, stages, barriers);
    copier.Run();
  } else {
    TakeRegisters<kMultiplierRegisters>();
    Multiplier<kDim> multiplier(args, rows, found.last_position, queries,
                                stages, barriers, group);
    multiplier.Run();
  }
}

template <int kDim>
Status LaunchDim(Stream stream, const AttentionArgs& args) {
  constexpr int kBytes = FlashTiles<kDim>::kSharedBytes;
  const Status status =
      cudaFuncSetAttribute(WarpgroupFlashKernel<kDim>,
                           cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (status != kOk) return status;
  const int64_t per_block =
      kFlashPairs / (args.heads / args.cache.num_kv_heads);
  const int64_t tiles = (args.rows.capacity + per_block - 1) / per_block;
  return Launch(WarpgroupFlashKernel<kDim>,
                dim3(static_cast<unsigned>(args.cache.num_kv_heads),
                     static_cast<unsigned>(tiles)),
                dim3(kFlashThreads), kBytes, stream, args);
}

}  // namespace

Status LaunchWarpgroupFlash(Stream stream, const AttentionArgs& args) {
  return args.cache.head_dim == 128 ? LaunchDim<128>(stream, args)
                                    : LaunchDim<256>(stream, args);
}

}  // namespace signet::backend::gpu
