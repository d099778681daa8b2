#pragma once
// The kernel interface: one launcher a step kind, over views, ignorant of
// programs. A backend implements all of it. Each argument struct is the
// contract of its op: shapes in the comments, B = rows.capacity, K experts per
// token, S = B*K slots with slot s = t*K + k, H hidden, I expert width, E
// experts. Only live rows (and slots of live rows) are read and written.
// Arithmetic is fp32 with the orders of contract N; inputs are finite unless an
// op says what it does otherwise. Launchers return when the work is done (CPU)
// or enqueued (GPU); one thread drives a Kernels.

#include <cstdint>

#include "backend/launch_key.h"
#include "backend/views.h"

namespace signet::backend {

/// out[t] = table[ids[t]], converted to f32.
struct EmbedArgs {
  Rows rows;
  const int32_t* ids = nullptr;  // [B], in [0, table.rows)
  WeightView table;              // [V, H]
  float* out = nullptr;          // [B, H]
};

/// out = x * (mean(x^2) + eps)^(-1/2) * (offset + w), per row.
struct NormArgs {
  Rows rows;
  const float* x = nullptr;  // [B, width]
  VectorView weight;         // [width]
  float offset = 1.0f;       // 1: zero-centred weights
  float eps = 1e-6f;
  int64_t width = 0;
  float* out = nullptr;  // [B, width]
};

/// out = x W^T.
struct ProjectionArgs {
  Rows rows;
  InputView x;           // [B, weight.cols]
  WeightView weight;     // [N, cols]
  float* out = nullptr;  // [B, N]
};

/// out = x rounded to bf16, nearest even, over live_rows * multiple rows.
struct RoundArgs {
  Rows rows;
  int64_t multiple = 1;  // K for slots, 1 for tokens
  int64_t width = 0;
  const float* x = nullptr;  // [B * multiple, width]
  void* out = nullptr;       // [B * multiple, width] bf16
};

/// Depthwise causal convolution over the sequence, then silu:
/// out[t, c] = silu(sum_j w[c, j] * u[t - (taps - 1) + j, c]), where columns
/// before the call come from `state` and columns before position 0 are 0.
/// Leaves the last taps - 1 raw columns of each sequence in `state`.
struct ConvArgs {
  Rows rows;
  RowForm form = RowForm::kSequenceEach;
  const float* u = nullptr;  // [B, C]
  WeightView weight;         // [C, taps]
  float* state = nullptr;    // [slots, C, taps - 1], oldest column first
  float* out = nullptr;      // [B, C]
};

enum class DeltaForm { kRecurrent, kChunked };

/// The gated delta rule (models: Qwen3.5). Per value head j with key head
/// j / (value_heads / key_heads):
///   q, k <- x / sqrt(sum x^2 + 1e-6), q additionally * key_dim^(-1/2)
///   beta = sigmoid(b), g = -exp(a_log) * softplus(a + dt_bias)
///   S <- exp(g) S; d = beta (v - S^T k); S <- S + k d^T; o = S^T q
/// kRecurrent does this token by token (rows of different sequences);
/// kChunked is the algebraically equal form over chunks of
/// tensor::kDeltaChunk tokens of one sequence. A row at position 0 starts from
/// S = 0 whatever the memory holds.
struct DeltaRuleArgs {
  Rows rows;
  DeltaForm form = DeltaForm::kRecurrent;
  int64_t key_heads = 0;
  int64_t value_heads = 0;
  int64_t key_dim = 0;         // dk
  int64_t value_dim = 0;       // dv
  const float* qkv = nullptr;  // [B, 2*key_heads*dk + value_heads*dv]
  const float* b = nullptr;    // [B, value_heads]
  const float* a = nullptr;    // [B, value_heads]
  VectorView a_log;            // [value_heads]
  VectorView dt_bias;          // [value_heads]
  float* state = nullptr;      // [slots, value_heads, dk, dv]
  float* scratch = nullptr;    // kChunked: [value_heads, DeltaScratchFloats]
  float* out = nullptr;        // [B, value_heads * dv]
};

/// Per value head: out = w * o * (mean(o^2) + eps)^(-1/2) * silu(z).
struct GatedNormArgs {
  Rows rows;
  int64_t heads = 0;
  int64_t head_dim = 0;
  const float* o = nullptr;  // [B, heads * head_dim]
  const float* z = nullptr;  // [B, heads * head_dim]
  VectorView weight;         // [head_dim]
  float eps = 1e-6f;
  float* out = nullptr;  // [B, heads * head_dim]
};

/// RMS norm per head (zero-centred weights), then rotary embedding of the
/// first rotary_dim dimensions, pairing (i, i + rotary_dim / 2):
/// angle = float(position) * inv_freq[i], inv_freq[i] = 1 / float(theta^(2i /
/// rotary_dim)), both in fp32; cos and sin of that fp32 angle.
/// q_gate holds per head query then gate; the gate is left where it is.
struct QkNormRopeArgs {
  Rows rows;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t rotary_dim = 0;
  const float* inv_freq = nullptr;  // [rotary_dim / 2], host-made constants
  const float* q_gate = nullptr;    // [B, heads * 2 * head_dim]
  const float* k = nullptr;         // [B, kv_heads * head_dim]
  VectorView q_norm;                // [head_dim]
  VectorView k_norm;                // [head_dim]
  float eps = 1e-6f;
  float* q_out = nullptr;  // [B, heads * head_dim]
  float* k_out = nullptr;  // [B, kv_heads * head_dim]
};

/// Writes k and v of every live row into the cache at its position.
struct KvAppendArgs {
  Rows rows;
  const float* k = nullptr;  // [B, kv_heads * head_dim], normed and rotated
  const float* v = nullptr;  // [B, kv_heads * head_dim]
  KvView cache;
};

/// out = softmax(q k^T * scale over positions 0 ... position) v * sigmoid(gate)
/// per head; query head h reads kv head h / (heads / kv_heads). The order of
/// the sum depends on the row's own position alone.
struct AttentionArgs {
  Rows rows;
  RowForm form = RowForm::kSequenceEach;
  int64_t heads = 0;
  float scale = 1.0f;
  const float* q = nullptr;       // [B, heads * head_dim]
  const float* q_gate = nullptr;  // [B, heads * 2 * head_dim]; gate halves read
  KvView cache;
  float* out = nullptr;  // [B, heads * head_dim]
};

/// out = silu(gate) * up over live_rows * multiple rows. `out` may be `gate`.
struct ActivationArgs {
  Rows rows;
  int64_t multiple = 1;  // K for slots, 1 for tokens
  int64_t width = 0;
  const float* gate = nullptr;  // [B * multiple, width]
  const float* up = nullptr;    // [B * multiple, width]
  float* out = nullptr;         // [B * multiple, width]
  void* rounded = nullptr;  // the same in bf16, nearest even, instead of out
};

/// out = residual + addend. `out` may be `residual`.
struct ResidualAddArgs {
  Rows rows;
  int64_t width = 0;
  const float* residual = nullptr;  // [B, width]
  const float* addend = nullptr;    // [B, width]
  float* out = nullptr;             // [B, width]
};

/// out = addend + sigmoid(gate) * x (one fused multiply-add). `out` may be
/// `addend`.
struct GatedAddArgs {
  Rows rows;
  int64_t width = 0;
  const float* addend = nullptr;  // [B, width]
  const float* gate = nullptr;    // [B, 1]
  const float* x = nullptr;       // [B, width]
  float* out = nullptr;           // [B, width]
};

/// Softmax top-k (contract G2): ids by score descending, then id ascending;
/// e_k = exp(l_k - l_max); renormalise: w_k = e_k / sum over the K selected, k
/// ascending; else the sum is over all E, ids ascending. A row with a
/// non-finite score raises kFlagNonFinite and gets ids -1, weights 0.
struct RouteArgs {
  Rows rows;
  int64_t num_experts = 0;
  int64_t top_k = 0;
  bool renormalise = true;
  const float* scores = nullptr;  // [B, E]
  int32_t* ids = nullptr;         // [B, K]
  float* weights = nullptr;       // [B, K]
  int32_t* flag = nullptr;        // [1], or-ed into
};

/// Copies precomputed routes; an id outside [0, E) or repeated within a row, or
/// a non-finite weight, raises the flag and the row gets ids -1, weights 0.
struct PrecomputedRouteArgs {
  Rows rows;
  int64_t num_experts = 0;
  int64_t top_k = 0;
  const int32_t* in_ids = nullptr;    // [B, K]
  const float* in_weights = nullptr;  // [B, K]
  int32_t* ids = nullptr;             // [B, K]
  float* weights = nullptr;           // [B, K]
  int32_t* flag = nullptr;            // [1], or-ed into
};

/// gate[s] = Wg_e x[s / K], up[s] = Wu_e x[s / K] for e = ids[s]; slots of
/// foreign or absent experts are skipped before any weight is touched.
struct IndexedGateUpArgs {
  Rows rows;
  int64_t top_k = 0;
  ExpertTableView table;
  const int32_t* ids = nullptr;  // [S]
  const float* x = nullptr;      // [B, H]
  float* gate = nullptr;         // [S, I]
  float* up = nullptr;           // [S, I]
};

/// out[s] = Wd_e act[s]: expanded, unweighted.
struct IndexedDownArgs {
  Rows rows;
  int64_t top_k = 0;
  ExpertTableView table;
  const int32_t* ids = nullptr;  // [S]
  const float* act = nullptr;    // [S, I]
  float* out = nullptr;          // [S, H]
};

/// Builds the grouped order: slots sorted by (local expert, slot), each
/// expert's run padded to a multiple of tile_rows. Every element of every
/// output is written: rows and tiles past the end are -1, foreign slots have
/// inverse_perm -1, slots of rows past the live ones too.
struct ScatterArgs {
  Rows rows;
  int64_t top_k = 0;
  int64_t num_experts = 0;                   // E
  int64_t num_local = 0;                     // E_r
  const int32_t* global_to_local = nullptr;  // [E]
  int64_t tile_rows = 0;                     // bm
  int64_t max_rows = 0;                      // M_max, a multiple of bm
  const int32_t* ids = nullptr;              // [S]
  int32_t* counts = nullptr;                 // [E_r], padded
  int32_t* offsets = nullptr;                // [E_r + 1]
  int32_t* sorted_slot = nullptr;            // [M_max], slot or -1
  int32_t* tile_expert = nullptr;            // [M_max / bm], local or -1
  int32_t* inverse_perm = nullptr;           // [S], row or -1
};

/// y[r] = [Wg_e x | Wu_e x] with x = x[sorted_slot[r] / K]; padding rows are
/// not written.
struct GroupedGateUpArgs {
  Rows rows;
  int64_t top_k = 0;
  int64_t tile_rows = 0;
  int64_t max_rows = 0;
  ExpertTableView table;
  const int32_t* sorted_slot = nullptr;  // [M_max]
  const int32_t* tile_expert = nullptr;  // [M_max / bm]
  InputView x;                           // [B, H]
  float* y = nullptr;                    // [M_max, 2 * I]
};

/// y[r] = Wd_e act[sorted_slot[r]]; padding rows are not written.
struct GroupedDownArgs {
  Rows rows;
  int64_t tile_rows = 0;
  int64_t max_rows = 0;
  ExpertTableView table;
  const int32_t* sorted_slot = nullptr;  // [M_max]
  const int32_t* tile_expert = nullptr;  // [M_max / bm]
  InputView act;                         // [S, I]
  float* y = nullptr;                    // [M_max, H]
};

/// Grouped rows back to slot order: gate[s], up[s] from y[r], s =
/// sorted_slot[r] >= 0.
struct UnscatterArgs {
  Rows rows;
  int64_t max_rows = 0;
  int64_t width = 0;                     // I
  const int32_t* sorted_slot = nullptr;  // [M_max]
  const float* y = nullptr;              // [M_max, 2 * I]
  float* gate = nullptr;                 // [S, I]
  float* up = nullptr;                   // [S, I]
};

/// The canonical fold (contract N2): lane(e) = e * lanes / E; per token and
/// lane P = sum of w_k * d_k, k ascending, fused multiply-adds from +0; out =
/// the balanced binary tree over the lanes this rank owns. d of slot s is row
/// inverse_perm[s] (grouped; -1 adds nothing) or row s (indexed). A token
/// without a slot here gets exact zeros.
struct CombineArgs {
  Rows rows;
  int64_t top_k = 0;
  int64_t num_experts = 0;                   // E
  int64_t lanes = 0;                         // L, of all ranks
  int64_t first_lane = 0;                    // of this rank
  int64_t num_lanes = 0;                     // of this rank, a power of two
  int64_t width = 0;                         // H
  const int32_t* ids = nullptr;              // [S]
  const float* weights = nullptr;            // [S]
  const float* d = nullptr;                  // [S or M_max, H]
  const int32_t* inverse_perm = nullptr;     // [S], or null: indexed
  const int32_t* global_to_local = nullptr;  // [E]
  float* out = nullptr;                      // [B, H]
};

enum class LogitRows { kLast, kAll };

/// Logits of the last live row, or of every live row.
struct LogitsArgs {
  Rows rows;
  LogitRows which = LogitRows::kAll;
  InputView x;           // [B, H], normed
  WeightView weight;     // [V, H]
  float* out = nullptr;  // kLast: [1, V]; kAll: [B, V]
};

/// Draws one id a row among ids 0 ... id_bound - 1 (-1 if there are none),
/// ordered by (logit descending, id ascending). Greedy at temperature 0: the
/// first. Else e = exp((logit - greatest) / temperature) in f32, sums of e in
/// f64: the top_k first, then the fewest of those, from the first, whose sum
/// reaches top_p of the sum over them (at least one); u from Philox4x32-10, key
/// = seed, counter = (sequence, position, 0, 0), u = (word 0 >> 8) * 2^-24; the
/// first id whose running sum exceeds u times the kept sum. A non-finite logit
/// of an id that may be drawn raises kFlagNonFinite and yields -1.
struct SampleArgs {
  Rows rows;
  LogitRows which = LogitRows::kAll;
  int64_t vocab = 0;
  const float* logits = nullptr;        // [1 or B, V]
  const SamplingRow* params = nullptr;  // [1 or B]
  int32_t* scratch = nullptr;           // [1 or B, V]
  int32_t* ids = nullptr;               // [1 or B]
  int32_t* flag = nullptr;              // [1], or-ed into
};

/// The all-reduce of a group of one: out = x over live rows.
struct IdentityReduceArgs {
  Rows rows;
  int64_t width = 0;
  const float* x = nullptr;  // [B, width]
  float* out = nullptr;      // [B, width]
};

class FusedKernels;

class Kernels {
 public:
  virtual ~Kernels() = default;
  /// Launches of several steps at once; null when the backend has none.
  virtual FusedKernels* fused() { return nullptr; }
  virtual void Embed(LaunchKey, const EmbedArgs&) = 0;
  virtual void Norm(LaunchKey, const NormArgs&) = 0;
  virtual void Projection(LaunchKey, const ProjectionArgs&) = 0;
  virtual void Round(LaunchKey, const RoundArgs&) = 0;
  virtual void Conv(LaunchKey, const ConvArgs&) = 0;
  virtual void DeltaRule(LaunchKey, const DeltaRuleArgs&) = 0;
  virtual void GatedNorm(LaunchKey, const GatedNormArgs&) = 0;
  virtual void QkNormRope(LaunchKey, const QkNormRopeArgs&) = 0;
  virtual void KvAppend(LaunchKey, const KvAppendArgs&) = 0;
  virtual void Attention(LaunchKey, const AttentionArgs&) = 0;
  virtual void Activation(LaunchKey, const ActivationArgs&) = 0;
  virtual void ResidualAdd(LaunchKey, const ResidualAddArgs&) = 0;
  virtual void GatedAdd(LaunchKey, const GatedAddArgs&) = 0;
  virtual void Route(LaunchKey, const RouteArgs&) = 0;
  virtual void PrecomputedRoute(LaunchKey, const PrecomputedRouteArgs&) = 0;
  virtual void IndexedGateUp(LaunchKey, const IndexedGateUpArgs&) = 0;
  virtual void IndexedDown(LaunchKey, const IndexedDownArgs&) = 0;
  virtual void Scatter(LaunchKey, const ScatterArgs&) = 0;
  virtual void GroupedGateUp(LaunchKey, const GroupedGateUpArgs&) = 0;
  virtual void GroupedDown(LaunchKey, const GroupedDownArgs&) = 0;
  virtual void Unscatter(LaunchKey, const UnscatterArgs&) = 0;
  virtual void Combine(LaunchKey, const CombineArgs&) = 0;
  virtual void Logits(LaunchKey, const LogitsArgs&) = 0;
  virtual void Sample(LaunchKey, const SampleArgs&) = 0;
  virtual void IdentityReduce(LaunchKey, const IdentityReduceArgs&) = 0;
};

}  // namespace signet::backend
