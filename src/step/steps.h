#pragma once
// The closed vocabulary of steps (contract G1). One struct a kind; its
// `Fields` is the only list of its operands and attributes, used by the
// printer, the parser and every rule. Operand types are those of the buffers
// (step/buffer.h); the shapes each step wants are in step/rules/types_*.cpp.
//
// A visitor has:
//   Read(name, BufferId&)            the step reads it
//   Write(name, BufferId&)           the step writes all of it (live rows)
//   Update(name, BufferId&)          state or flag, read and written in place
//   ReadOptional / WriteOptional(name, std::optional<BufferId>&)
//   Attribute(name, T&)              int64_t, float, double or an enum below

#include <cstdint>
#include <optional>
#include <string_view>
#include <variant>
#include <vector>

#include "base/id.h"
#include "step/buffer.h"
#include "topology/axis.h"

namespace signet::step {

inline constexpr BufferId kNoBuffer{-1};

enum class RouterKind { kSoftmaxTopK, kPrecomputed };
enum class DeltaForm { kRecurrent, kChunked };
enum class LogitRows { kLast, kAll };

/// Names of the attribute enums in the text form, and back.
std::string_view Name(RouterKind router);
std::string_view Name(DeltaForm form);
std::string_view Name(LogitRows rows);
std::optional<RouterKind> ParseRouterKind(std::string_view text);
std::optional<DeltaForm> ParseDeltaForm(std::string_view text);
std::optional<LogitRows> ParseLogitRows(std::string_view text);

struct Embed {
  static constexpr std::string_view kName = "embed";
  BufferId ids = kNoBuffer;    // [B] i32
  BufferId table = kNoBuffer;  // [V, H]
  BufferId out = kNoBuffer;    // [B, H] f32
  template <typename Self, typename V>
  static void Fields(Self& s, V& v) {
    v.Read("ids", s.ids);
    v.Read("table", s.table);
    v.Write("out", s.out);
  }
};

struct Norm {
  static constexpr std::string_view kName = "norm";
  BufferId x = kNoBuffer;       // [B, H] f32
  BufferId weight = kNoBuffer;  // [H]
  BufferId out = kNoBuffer;     // [B, H] f32
  float eps = 0;
  float offset = 0;  // added to the weight: 1 for zero-centred ones
  template <typename Self, typename V>
  static void Fields(Self& s, V& v) {
    v.Read("x", s.x);
    v.Read("weight", s.weight);
    v.Write("out", s.out);
    v.Attribute("eps", s.eps);
    v.Attribute("offset", s.offset);
  }
};

/// Rows as the products of a shape read them (N1): f32 to bf16, nearest even.
struct Round {
  static constexpr std::string_view kName = "round";
  BufferId x = kNoBuffer;    // [B, W] f32
  BufferId out = kNoBuffer;  // [B, W] bf16
  template <typename Self, typename V>
  static void Fields(Self& s, V& v) {
    v.Read("x", s.x);
    v.Write("out", s.out);
  }
};

struct Projection {
  static constexpr std::string_view kName = "projection";
  BufferId x = kNoBuffer;       // [B, K] f32, or bf16 as the shape's products
  BufferId weight = kNoBuffer;  // [N, K]
  BufferId out = kNoBuffer;     // [B, N] f32
  template <typename Self, typename V>
  static void Fields(Self& s, V& v) {
    v.Read("x", s.x);
    v.Read("weight", s.weight);
    v.Write("out", s.out);
  }
};

struct QkNormRope {
  static constexpr std::string_view kName = "qk_norm_rope";
  BufferId q_gate = kNoBuffer;    // [B, heads * 2 * head_dim] f32
  BufferId k = kNoBuffer;         // [B, kv_heads * head_dim] f32
  BufferId q_norm = kNoBuffer;    // [head_dim]
  BufferId k_norm = kNoBuffer;    // [head_dim]
  BufferId inv_freq = kNoBuffer;  // [rotary_dim / 2] f32, constant
  BufferId position = kNoBuffer;  // [B] i32
  BufferId q_out = kNoBuffer;     // [B, heads * head_dim] f32
  BufferId k_out = kNoBuffer;     // [B, kv_heads * head_dim] f32
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t rotary_dim = 0;
  double theta = 0;
  float eps = 0;
  template <typename Self, typename V>
  static void Fields(Self& s, V& v) {
    v.Read("q_gate", s.q_gate);
    v.Read("k", s.k);
    v.Read("q_norm", s.q_norm);
    v.Read("k_norm", s.k_norm);
    v.Read("inv_freq", s.inv_freq);
    v.Read("position", s.position);
    v.Write("q_out", s.q_out);
    v.Write("k_out", s.k_out);
    v.Attribute("heads", s.heads);
    v.Attribute("kv_heads", s.kv_heads);
    v.Attribute("head_dim", s.head_dim);
    v.Attribute("rotary_dim", s.rotary_dim);
    v.Attribute("theta", s.theta);
    v.Attribute("eps", s.eps);
  }
};

struct KvAppend {
  static constexpr std::string_view kName = "kv_append";
  BufferId k = kNoBuffer;           // [B, kv_heads * head_dim] f32
  BufferId v = kNoBuffer;           // the same
  BufferId slot = kNoBuffer;        // [B] i32
  BufferId position = kNoBuffer;    // [B] i32
  BufferId page_table = kNoBuffer;  // [slots, pages_per_slot] i32
  BufferId k_cache = kNoBuffer;     // [pages, page_tokens, kv_heads, head_dim]
  BufferId v_cache = kNoBuffer;     // the same
  template <typename Self, typename V>
  static void Fields(Self& s, V& v) {
    v.Read("k", s.k);
    v.Read("v", s.v);
    v.Read("slot", s.slot);
    v.Read("position", s.position);
    v.Read("page_table", s.page_table);
    v.Update("k_cache", s.k_cache);
    v.Update("v_cache", s.v_cache);
  }
};

struct Attention {
  static constexpr std::string_view kName = "attention";
  BufferId q = kNoBuffer;           // [B, heads * head_dim] f32
  BufferId q_gate = kNoBuffer;      // [B, heads * 2 * head_dim] f32
  BufferId k_cache = kNoBuffer;     // [pages, page_tokens, kv_heads, head_dim]
  BufferId v_cache = kNoBuffer;     // the same
  BufferId slot = kNoBuffer;        // [B] i32
  BufferId position = kNoBuffer;    // [B] i32
  BufferId page_table = kNoBuffer;  // [slots, pages_per_slot] i32
  BufferId out = kNoBuffer;         // [B, heads * head_dim] f32
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  template <typename Self, typename V>
  static void Fields(Self& s, V& v) {
    v.Read("q", s.q);
    v.Read("q_gate", s.q_gate);
    v.Read("k_cache", s.k_cache);
    v.Read("v_cache", s.v_cache);
    v.Read("slot", s.slot);
    v.Read("position", s.position);
    v.Read("page_table", s.page_table);
    v.Write("out", s.out);
    v.Attribute("heads", s.heads);
    v.Attribute("kv_heads", s.kv_heads);
    v.Attribute("head_dim", s.head_dim);
  }
};

struct Conv {
  static constexpr std::string_view kName = "conv";
  BufferId u = kNoBuffer;         // [B, C] f32
  BufferId weight = kNoBuffer;    // [C, taps]
  BufferId slot = kNoBuffer;      // [B] i32
  BufferId position = kNoBuffer;  // [B] i32
  BufferId state = kNoBuffer;     // [slots, C, taps - 1] f32
  BufferId out = kNoBuffer;       // [B, C] f32
  template <typename Self, typename V>
  static void Fields(Self& s, V& v) {
    v.Read("u", s.u);
    v.Read("weight", s.weight);
    v.Read("slot", s.slot);
    v.Read("position", s.position);
    v.Update("state", s.state);
    v.Write("out", s.out);
  }
};

struct DeltaRule {
  static constexpr std::string_view kName = "delta_rule";
  BufferId qkv = kNoBuffer;         // [B, 2 key_heads dk + value_heads dv] f32
  BufferId b = kNoBuffer;           // [B, value_heads] f32
  BufferId a = kNoBuffer;           // [B, value_heads] f32
  BufferId a_log = kNoBuffer;       // [value_heads]
  BufferId dt_bias = kNoBuffer;     // [value_heads]
  BufferId slot = kNoBuffer;        // [B] i32
  BufferId position = kNoBuffer;    // [B] i32
  BufferId state = kNoBuffer;       // [slots, value_heads, dk, dv] f32
  std::optional<BufferId> scratch;  // chunked: [value_heads, n] f32
  BufferId out = kNoBuffer;         // [B, value_heads * dv] f32
  DeltaForm form = DeltaForm::kRecurrent;
  int64_t key_heads = 0;
  int64_t value_heads = 0;
  int64_t key_dim = 0;
  int64_t value_dim = 0;
  template <typename Self, typename V>
  static void Fields(Self& s, V& v) {
    v.Read("qkv", s.qkv);
    v.Read("b", s.b);
    v.Read("a", s.a);
    v.Read("a_log", s.a_log);
    v.Read("dt_bias", s.dt_bias);
    v.Read("slot", s.slot);
    v.Read("position", s.position);
    v.Update("state", s.state);
    v.WriteOptional("scratch", s.scratch);
    v.Write("out", s.out);
    v.Attribute("form", s.form);
    v.Attribute("key_heads", s.key_heads);
    v.Attribute("value_heads", s.value_heads);
    v.Attribute("key_dim", s.key_dim);
    v.Attribute("value_dim", s.value_dim);
  }
};

struct GatedNorm {
  static constexpr std::string_view kName = "gated_norm";
  BufferId o = kNoBuffer;       // [B, heads * head_dim] f32
  BufferId z = kNoBuffer;       // [B, heads * head_dim] f32
  BufferId weight = kNoBuffer;  // [head_dim]
  BufferId out = kNoBuffer;     // [B, heads * head_dim] f32
  int64_t heads = 0;
  int64_t head_dim = 0;
  float eps = 0;
  template <typename Self, typename V>
  static void Fields(Self& s, V& v) {
    v.Read("o", s.o);
    v.Read("z", s.z);
    v.Read("weight", s.weight);
    v.Write("out", s.out);
    v.Attribute("heads", s.heads);
    v.Attribute("head_dim", s.head_dim);
    v.Attribute("eps", s.eps);
  }
};

/// silu(gate) * up of the dense MLP and the shared expert.
struct Activation {
  static constexpr std::string_view kName = "activation";
  BufferId gate = kNoBuffer;  // [B, I] f32
  BufferId up = kNoBuffer;    // [B, I] f32
  BufferId out = kNoBuffer;   // [B, I] as down reads it; f32 may lie in `gate`
  template <typename Self, typename V>
  static void Fields(Self& s, V& v) {
    v.Read("gate", s.gate);
    v.Read("up", s.up);
    v.Write("out", s.out);
  }
};

struct ResidualAdd {
  static constexpr std::string_view kName = "residual_add";
  BufferId residual = kNoBuffer;  // [B, H] f32
  BufferId addend = kNoBuffer;    // [B, H] f32
  BufferId out = kNoBuffer;       // [B, H] f32; may lie in `residual`
  template <typename Self, typename V>
  static void Fields(Self& s, V& v) {
    v.Read("residual", s.residual);
    v.Read("addend", s.addend);
    v.Write("out", s.out);
  }
};

/// out = addend + sigmoid(gate) * x: the shared expert's one entry.
struct GatedAdd {
  static constexpr std::string_view kName = "gated_add";
  BufferId addend = kNoBuffer;  // [B, H] f32
  BufferId gate = kNoBuffer;    // [B, 1] f32
  BufferId x = kNoBuffer;       // [B, H] f32
  BufferId out = kNoBuffer;     // [B, H] f32; may lie in `addend`
  template <typename Self, typename V>
  static void Fields(Self& s, V& v) {
    v.Read("addend", s.addend);
    v.Read("gate", s.gate);
    v.Read("x", s.x);
    v.Write("out", s.out);
  }
};

struct MoeRoute {
  static constexpr std::string_view kName = "moe_route";
  std::optional<BufferId> scores;      // [B, E] f32; softmax
  std::optional<BufferId> in_ids;      // [B, K] i32; precomputed
  std::optional<BufferId> in_weights;  // [B, K] f32; precomputed
  BufferId ids = kNoBuffer;            // [B, K] i32
  BufferId weights = kNoBuffer;        // [B, K] f32
  BufferId flag = kNoBuffer;           // [1] i32
  RouterKind router = RouterKind::kSoftmaxTopK;
  int64_t num_experts = 0;
  int64_t top_k = 0;
  int64_t renormalise = 1;  // 0 or 1
  template <typename Self, typename V>
  static void Fields(Self& s, V& v) {
    v.ReadOptional("scores", s.scores);
    v.ReadOptional("in_ids", s.in_ids);
    v.ReadOptional("in_weights", s.in_weights);
    v.Write("ids", s.ids);
    v.Write("weights", s.weights);
    v.Update("flag", s.flag);
    v.Attribute("router", s.router);
    v.Attribute("num_experts", s.num_experts);
    v.Attribute("top_k", s.top_k);
    v.Attribute("renormalise", s.renormalise);
  }
};

/// Products of the indexed grammar: gate_up writes `out` (gate) and `up`; down
/// writes `out`, one unweighted row a slot.
struct IndexedMoeGemv {
  static constexpr std::string_view kName = "indexed_moe_gemv";
  BufferId experts = kNoBuffer;  // the projection's experts
  BufferId ids = kNoBuffer;      // [B, K] i32, of the block's route
  BufferId x = kNoBuffer;        // gate_up: [B, H]; down: [S, I] f32
  BufferId out = kNoBuffer;      // gate_up: [S, I]; down: [S, H] f32
  std::optional<BufferId> up;    // gate_up: [S, I] f32
  ExpertPart which = ExpertPart::kGateUp;
  template <typename Self, typename V>
  static void Fields(Self& s, V& v) {
    v.Read("experts", s.experts);
    v.Read("ids", s.ids);
    v.Read("x", s.x);
    v.Write("out", s.out);
    v.WriteOptional("up", s.up);
    v.Attribute("which", s.which);
  }
};

struct MoeScatter {
  static constexpr std::string_view kName = "moe_scatter";
  BufferId experts = kNoBuffer;       // gate_up; gives the owner view
  BufferId ids = kNoBuffer;           // [B, K] i32
  BufferId counts = kNoBuffer;        // [E_r] i32
  BufferId offsets = kNoBuffer;       // [E_r + 1] i32
  BufferId sorted_slot = kNoBuffer;   // [M_max] i32
  BufferId tile_expert = kNoBuffer;   // [M_max / tile_rows] i32
  BufferId inverse_perm = kNoBuffer;  // [S] i32
  int64_t tile_rows = 0;              // bm
  template <typename Self, typename V>
  static void Fields(Self& s, V& v) {
    v.Read("experts", s.experts);
    v.Read("ids", s.ids);
    v.Write("counts", s.counts);
    v.Write("offsets", s.offsets);
    v.Write("sorted_slot", s.sorted_slot);
    v.Write("tile_expert", s.tile_expert);
    v.Write("inverse_perm", s.inverse_perm);
    v.Attribute("tile_rows", s.tile_rows);
  }
};

struct GroupedMoeGemm {
  static constexpr std::string_view kName = "grouped_moe_gemm";
  BufferId experts = kNoBuffer;      // the projection's experts
  BufferId sorted_slot = kNoBuffer;  // [M_max] i32
  BufferId tile_expert = kNoBuffer;  // [M_max / tile_rows] i32
  BufferId x = kNoBuffer;            // gate_up: [B, H]; down: [S, I]
  BufferId y = kNoBuffer;            // gate_up: [M_max, 2I]; down: [M_max, H]
  ExpertPart which = ExpertPart::kGateUp;
  int64_t tile_rows = 0;
  template <typename Self, typename V>
  static void Fields(Self& s, V& v) {
    v.Read("experts", s.experts);
    v.Read("sorted_slot", s.sorted_slot);
    v.Read("tile_expert", s.tile_expert);
    v.Read("x", s.x);
    v.Write("y", s.y);
    v.Attribute("which", s.which);
    v.Attribute("tile_rows", s.tile_rows);
  }
};

struct MoeGateUpUnscatter {
  static constexpr std::string_view kName = "moe_gate_up_unscatter";
  BufferId sorted_slot = kNoBuffer;  // [M_max] i32
  BufferId y = kNoBuffer;            // [M_max, 2I] f32
  BufferId gate = kNoBuffer;         // [S, I] f32
  BufferId up = kNoBuffer;           // [S, I] f32
  template <typename Self, typename V>
  static void Fields(Self& s, V& v) {
    v.Read("sorted_slot", s.sorted_slot);
    v.Read("y", s.y);
    v.Write("gate", s.gate);
    v.Write("up", s.up);
  }
};

/// silu(gate) * up over slots. The basis of `out` is that of down's input.
struct MoeActivation {
  static constexpr std::string_view kName = "moe_activation";
  BufferId gate = kNoBuffer;  // [S, I] f32
  BufferId up = kNoBuffer;    // [S, I] f32
  BufferId out = kNoBuffer;   // [S, I] as down reads it; f32 may lie in `gate`
  template <typename Self, typename V>
  static void Fields(Self& s, V& v) {
    v.Read("gate", s.gate);
    v.Read("up", s.up);
    v.Write("out", s.out);
  }
};

/// The only weighted sum of a routed block: the canonical fold (N2).
struct MoeCombine {
  static constexpr std::string_view kName = "moe_combine";
  BufferId experts = kNoBuffer;          // down; gives the owner view
  BufferId d = kNoBuffer;                // indexed [S, H]; grouped [M_max, H]
  BufferId ids = kNoBuffer;              // [B, K] i32
  BufferId weights = kNoBuffer;          // [B, K] f32
  std::optional<BufferId> inverse_perm;  // grouped: [S] i32
  BufferId out = kNoBuffer;              // [B, H] f32, partial
  int64_t lanes = 0;                     // L
  int64_t first_lane = 0;
  int64_t num_lanes = 0;
  template <typename Self, typename V>
  static void Fields(Self& s, V& v) {
    v.Read("experts", s.experts);
    v.Read("d", s.d);
    v.Read("ids", s.ids);
    v.Read("weights", s.weights);
    v.ReadOptional("inverse_perm", s.inverse_perm);
    v.Write("out", s.out);
    v.Attribute("lanes", s.lanes);
    v.Attribute("first_lane", s.first_lane);
    v.Attribute("num_lanes", s.num_lanes);
  }
};

/// What every collective states about its group (S6, F2).
struct GroupRef {
  topology::Axis axis = topology::Axis::kEp;
  std::vector<Rank> ranks;  // in axis order
  uint64_t epoch = 0;       // of the mesh; not printed
  friend bool operator==(const GroupRef&, const GroupRef&) = default;
};

/// Partial(axis) to Whole, once.
struct AllReduce {
  static constexpr std::string_view kName = "all_reduce";
  BufferId x = kNoBuffer;    // [B, H] f32, partial
  BufferId out = kNoBuffer;  // [B, H] f32, whole
  GroupRef group;
  ScheduleRow row{-1};
  int64_t elements = 0;  // B * H
  template <typename Self, typename V>
  static void Fields(Self& s, V& v) {
    v.Read("x", s.x);
    v.Write("out", s.out);
    v.Attribute("group", s.group);
    v.Attribute("row", s.row);
    v.Attribute("elements", s.elements);
  }
};

/// Shard(axis) to Whole: the ranks' vocabulary rows side by side.
struct Gather {
  static constexpr std::string_view kName = "gather";
  BufferId x = kNoBuffer;    // [logit rows, V_r] f32, shard
  BufferId out = kNoBuffer;  // [logit rows, V] f32, whole
  GroupRef group;
  ScheduleRow row{-1};
  template <typename Self, typename V>
  static void Fields(Self& s, V& v) {
    v.Read("x", s.x);
    v.Write("out", s.out);
    v.Attribute("group", s.group);
    v.Attribute("row", s.row);
  }
};

/// The drawn ids, from the one rank of the group that has them to all (X7).
struct Broadcast {
  static constexpr std::string_view kName = "broadcast";
  std::optional<BufferId> x;  // [logit rows] i32; on the root alone
  BufferId out = kNoBuffer;   // the same, whole
  GroupRef group;
  ScheduleRow row{-1};
  Rank root{0};
  template <typename Self, typename V>
  static void Fields(Self& s, V& v) {
    v.ReadOptional("x", s.x);
    v.Write("out", s.out);
    v.Attribute("group", s.group);
    v.Attribute("row", s.row);
    v.Attribute("root", s.root);
  }
};

/// The residual from one pipeline stage to the next, as bytes.
struct BandTransfer {
  static constexpr std::string_view kName = "band_transfer";
  std::optional<BufferId> x;    // [B, H] f32; on the source alone
  std::optional<BufferId> out;  // [B, H] f32; on the target alone
  GroupRef group;               // source and target
  ScheduleRow row{-1};
  template <typename Self, typename V>
  static void Fields(Self& s, V& v) {
    v.ReadOptional("x", s.x);
    v.WriteOptional("out", s.out);
    v.Attribute("group", s.group);
    v.Attribute("row", s.row);
  }
};

struct Logits {
  static constexpr std::string_view kName = "logits";
  BufferId x = kNoBuffer;       // [B, H], normed, as the shape's products
  BufferId weight = kNoBuffer;  // [V, H]
  BufferId out = kNoBuffer;     // [logit rows, V] f32
  LogitRows which = LogitRows::kAll;
  template <typename Self, typename V>
  static void Fields(Self& s, V& v) {
    v.Read("x", s.x);
    v.Read("weight", s.weight);
    v.Write("out", s.out);
    v.Attribute("which", s.which);
  }
};

struct Sample {
  static constexpr std::string_view kName = "sample";
  BufferId logits = kNoBuffer;   // [logit rows, V] f32
  BufferId params = kNoBuffer;   // [logit rows, 8] i32
  BufferId scratch = kNoBuffer;  // [logit rows, V] i32
  BufferId ids = kNoBuffer;      // [logit rows] i32
  BufferId flag = kNoBuffer;     // [1] i32
  LogitRows which = LogitRows::kAll;
  template <typename Self, typename V>
  static void Fields(Self& s, V& v) {
    v.Read("logits", s.logits);
    v.Read("params", s.params);
    v.Write("scratch", s.scratch);
    v.Write("ids", s.ids);
    v.Update("flag", s.flag);
    v.Attribute("which", s.which);
  }
};

/// The registry: a kind missing here, or in any visit, does not compile.
using Step =
    std::variant<Embed, Norm, Round, Projection, QkNormRope, KvAppend,
                 Attention, Conv, DeltaRule, GatedNorm, Activation, ResidualAdd,
                 GatedAdd, MoeRoute, IndexedMoeGemv, MoeScatter, GroupedMoeGemm,
                 MoeGateUpUnscatter, MoeActivation, MoeCombine, AllReduce,
                 Gather, Broadcast, BandTransfer, Logits, Sample>;

std::string_view KindName(const Step& step);

}  // namespace signet::step
