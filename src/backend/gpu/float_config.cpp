#include "backend/gpu/float_config.h"

#include <algorithm>
#include <span>

namespace signet::backend::gpu {
namespace {

constexpr int64_t kTeamThreads = 256;
constexpr int64_t kMaxBatch = 8;
// Of one multiprocessor; every block takes a further KiB of it.
constexpr int64_t kSharedPerSm = int64_t{227} << 10;
constexpr int64_t kSharedPerBlock = int64_t{1} << 10;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// Teams on a multiprocessor, as the registers of each batch allow; a warp that
/// takes whole rows has twice the octets in flight.
int64_t TeamsPerSm(int batch, int dot_warps, FloatPath path) {
  if (batch == 1) return dot_warps == 1 && path == FloatPath::kShared ? 2 : 4;
  return batch == 2 ? 3 : 2;
}

/// The weight rows and octets in flight for which kernels exist
/// (float_products.cu).
struct Step {
  int rows;
  int chunks;
};

std::span<const Step> StepsOf(FloatPath path, int dot_warps, int batch) {
  static constexpr Step kPortable[] = {{2, 1}};
  static constexpr Step kShort[] = {{4, 2}};
  static constexpr Step kWhole[] = {{2, 8}};
  static constexpr Step kNarrow[] = {{4, 1}};
  static constexpr Step kFour[] = {{8, 1}, {4, 2}};
  static constexpr Step kFew[] = {{8, 1}, {4, 2}, {2, 4}};
  if (path == FloatPath::kPortable) return kPortable;
  if (batch == 8) return kNarrow;
  if (dot_warps == 1 && batch == 1) return kWhole;
  if (dot_warps == 1 || path == FloatPath::kStreamed) return kShort;
  return batch == 4 ? std::span<const Step>(kFour) : kFew;
}

int64_t TotalGroups(const FloatDesc& desc, int rows) {
  int64_t groups = 0;
  for (int p = 0; p < desc.num_products; ++p) {
    groups += GroupsOf(desc, p, rows);
  }
  return groups;
}

int64_t InputBytes(const FloatDesc& desc, int batch) {
  const int64_t row = CeilDiv(desc.cols, 8) * 32;
  // A norm's weights lie beside the input, and its sums.
  return row * batch + (desc.norm ? row + batch * 32 : 0);
}

}  // namespace

int64_t GroupsOf(const FloatDesc& desc, int p, int rows) {
  const bool pair = desc.paired && p + 1 == desc.num_products;
  return CeilDiv(desc.rows[static_cast<size_t>(p)], pair ? rows / 2 : rows);
}

FloatConfig ChooseFloat(const FloatDesc& desc) {
  FloatConfig config;
  config.dot_warps = DotWarps(desc.cols, desc.capacity);
  config.batch = 1;
  while (config.batch < std::min(desc.capacity, kMaxBatch)) config.batch *= 2;
  // The most that the sums across warps take: 32 values, 8 warps, two sets.
  const int64_t team_bytes = config.dot_warps == 1 ? 0 : 2 * 8 * 32 * 4;
  const int64_t input_bytes = InputBytes(desc, config.batch);
  if (!desc.vectors) {
    config.path = FloatPath::kPortable;
    config.batch = config.batch == 1 ? 1 : kMaxBatch;
  } else if (input_bytes + team_bytes + kSharedPerBlock > kSharedPerSm) {
    config.path = FloatPath::kStreamed;
  } else {
    config.path = FloatPath::kShared;
  }

  int64_t teams_per_sm =
      TeamsPerSm(config.batch, config.dot_warps, config.path);
  if (config.path == FloatPath::kShared) {
    // More teams a block where the inputs of as many blocks do not fit.
    const int max_teams = config.batch == 1 ? 1 : 2;
    int64_t fitting = 0;
    for (config.teams = 1;; config.teams *= 2) {
      const int64_t block =
          input_bytes + config.teams * team_bytes + kSharedPerBlock;
      fitting = kSharedPerSm / block * config.teams;
      if (fitting >= teams_per_sm || config.teams == max_teams) break;
    }
    if (fitting == 0) {  // one team fits, so many do not
      config.teams = 1;
      fitting = 1;
    }
    teams_per_sm =
        std::min(teams_per_sm / config.teams * config.teams, fitting);
  }
  // A team of one warp is an eighth of a block's.
  const int64_t teams =
      desc.num_sms * teams_per_sm * (kTeamThreads / 32 / config.dot_warps);

  // The step with the fewest weight rows a team; of equals the largest. Rows
  // of one octet a thread need four to keep enough loads in flight.
  const bool one_octet = desc.cols <= config.dot_warps * 256;
  int64_t least = -1;
  for (const Step& step :
       StepsOf(config.path, config.dot_warps, config.batch)) {
    if (least >= 0 && one_octet && step.rows < 4) break;
    const int64_t groups = TotalGroups(desc, step.rows);
    const int64_t rows = CeilDiv(groups, teams) * step.rows;
    if (least >= 0 && rows >= least) continue;
    least = rows;
    config.rows = step.rows;
    config.chunks = step.chunks;
    config.groups = groups;
  }
  const int64_t teams_per_block =
      config.teams * (kTeamThreads / 32 / config.dot_warps);
  config.blocks = std::min(desc.num_sms * teams_per_sm / config.teams,
                           CeilDiv(config.groups, teams_per_block));
  config.batches = desc.last_row ? std::min<int64_t>(desc.capacity, 1)
                                 : CeilDiv(desc.capacity, config.batch);
  const int64_t partials =
      config.dot_warps == 1 ? 0 : 2 * 8 * config.rows * config.batch * 4;
  config.shared_bytes = static_cast<size_t>(
      (config.path == FloatPath::kShared ? input_bytes : 0) +
      config.teams * partials);
  return config;
}

bool FusesFloat(const FloatDesc& desc) {
  return desc.vectors && desc.capacity <= kMaxBatch &&
         ChooseFloat(desc).path == FloatPath::kShared;
}

ExpertConfig ChooseExpert(const ExpertDesc& desc) {
  // Per block: the list of slots and the sums of teams (moe_indexed.cuh).
  constexpr int64_t kStaticBytes = int64_t{15} << 10;
  constexpr int64_t kPointerBytes = 24;
  constexpr int64_t kMaxTable = 512;
  ExpertConfig config;
  config.dot_warps = ExpertDotWarps(desc.cols);
  config.vectors = desc.bf16 && desc.aligned && desc.cols % 8 == 0;
  const int64_t slots = desc.capacity * desc.top_k;
  config.slot_blocks = CeilDiv(slots, kExpertSlots);
  int64_t bytes = 0;
  if (desc.num_experts <= kMaxTable) {
    config.table_in_shared = true;
    bytes += desc.num_experts * kPointerBytes;
  }
  // Long rows of gate and up meet their input in shared memory, where it fits.
  if (config.vectors && desc.paired) {
    const int64_t input = desc.capacity * desc.cols * 4;
    config.vectors = kStaticBytes + bytes + input <= kSharedPerSm;
    config.input_in_shared = config.vectors;
    if (config.input_in_shared) bytes += input;
  }
  const int64_t fitting =
      kSharedPerSm / (kStaticBytes + bytes + kSharedPerBlock);
  const int rows = StepOfExpert(config.dot_warps, desc.paired).rows;
  const int64_t groups = std::min<int64_t>(slots, kExpertSlots) *
                         CeilDiv(desc.rows, desc.paired ? rows / 2 : rows);
  config.blocks = std::min(
      desc.num_sms *
          std::clamp<int64_t>(fitting, 1,
                              ExpertBlocksPerSm(config.dot_warps, desc.paired)),
      CeilDiv(groups, 8 / config.dot_warps));
  config.shared_bytes = static_cast<size_t>(bytes);
  return config;
}

bool FusesRouteGateUp(const RouteGateUpDesc& desc) {
  return desc.capacity <= kMaxBatch &&
         desc.capacity * desc.top_k <= kExpertSlots;
}

MoeTailConfig ChooseMoeTail(const MoeTailDesc& desc) {
  constexpr int64_t kWarps = kMoeTailThreads / 32;
  constexpr int64_t kMaxTopK = 32;
  constexpr int64_t kMaxExperts = 1024;
  constexpr int64_t kMaxWidth = int64_t{4} * 256;  // four octets a thread
  constexpr int64_t kSlotBytes = 24;
  MoeTailConfig config;
  const int64_t width = std::max(desc.width, desc.shared_width);
  if (!desc.bf16 || !desc.vectors || desc.capacity > kMaxBatch ||
      desc.top_k > kMaxTopK || desc.num_experts > kMaxExperts ||
      width > kMaxWidth || ExpertDotWarps(width) != 1 ||
      DotWarps(width, desc.capacity) != 1 || desc.width % 8 != 0 ||
      desc.shared_width % 8 != 0) {
    return config;
  }
  const int chunks = width <= 512 ? 2 : 4;
  const int64_t bytes =
      desc.capacity * ((desc.top_k * desc.width + desc.shared_width) * 4 +
                       MoeTailSlots(desc.top_k, chunks) * kSlotBytes + 4) +
      desc.num_experts * 8;
  if (bytes + kSharedPerBlock > kSharedPerSm) return config;
  config.chunks = chunks;
  config.blocks = std::min<int64_t>(desc.num_sms, CeilDiv(desc.hidden, kWarps));
  config.shared_bytes = static_cast<size_t>(bytes);
  return config;
}

}  // namespace signet::backend::gpu
