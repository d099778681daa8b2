#pragma once
// The proven list of what a checkpoint holds: every weight with its role, file
// range, type and sharding rule, and the expert groups (contract W). The
// collectives follow from it and a mesh: plan/schedule.h. Built from config and
// headers alone by BuildManifest; immutable; any thread.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/digest.h"
#include "base/id.h"
#include "base/result.h"
#include "model/checkpoint.h"
#include "model/config.h"
#include "tensor/basis.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace signet::model {

/// What a weight is for. Shapes are of the checkpoint, [out, in].
enum class Role {
  kEmbedding,  // [V, H]
  kFinalNorm,  // [H], zero-centred
  kLmHead,     // [V, H]; alias of kEmbedding when tied
  kInputNorm,  // [H], zero-centred
  kPostNorm,   // [H], zero-centred, before the feed-forward part
  // Full attention.
  kQProj,  // [num_heads * 2 * head_dim, H], per head query then gate
  kKProj,  // [num_kv_heads * head_dim, H]
  kVProj,  // [num_kv_heads * head_dim, H]
  kOProj,  // [H, num_heads * head_dim]
  kQNorm,  // [head_dim], zero-centred
  kKNorm,  // [head_dim], zero-centred
  // Gated DeltaNet.
  kInProjQkv,   // [conv_channels, H]: q, k, v blocks
  kInProjZ,     // [linear_value_heads * linear_value_dim, H]
  kInProjB,     // [linear_value_heads, H]
  kInProjA,     // [linear_value_heads, H]
  kConv,        // [conv_channels, conv_taps] (stored [C, 1, taps])
  kALog,        // [linear_value_heads]
  kDtBias,      // [linear_value_heads]
  kLinearNorm,  // [linear_value_dim], plain
  kOutProj,     // [H, linear_value_heads * linear_value_dim]
  // Feed-forward.
  kRouter,        // [E, H]
  kSharedGate,    // [shared_width, H]
  kSharedUp,      // [shared_width, H]
  kSharedDown,    // [H, shared_width]
  kSharedRouter,  // [1, H], the sigmoid gate of the shared expert
  kMlpGate,       // [dense_width, H]
  kMlpUp,         // [dense_width, H]
  kMlpDown,       // [H, dense_width]
};

inline constexpr int kNumRoles = static_cast<int>(Role::kMlpDown) + 1;

/// `in_proj_qkv`, `router`, ...: the checkpoint's own short names.
std::string_view Name(Role role);

/// How a weight is cut over an axis (contract P3, P3b).
enum class ShardPolicy {
  kReplicate,
  kRows,           // output rows
  kColumns,        // input columns; its product is a partial
  kQkvRowBlocks,   // three row blocks (q, k, v), each by heads
  kHeadRows,       // rows by head
  kVocabularyRows  // blocks of ceil(V/N) rows
};

/// Bytes [begin, end) of a weight file.
struct FileRange {
  FileId file;
  uint64_t begin_bytes;
  uint64_t end_bytes;
  uint64_t size_bytes() const { return end_bytes - begin_bytes; }
};

/// Scales or zero points of a quantised weight, with their own range.
struct Sidecar {
  std::string name;
  tensor::Shape shape;
  tensor::DType dtype;
  FileRange source;
};

struct WeightEntry {
  std::string name;              // in the checkpoint; an alias: lm_head.weight
  std::optional<LayerId> layer;  // unset: embedding, final norm, lm_head
  Role role;
  tensor::Shape shape;  // logical, full width
  tensor::DType dtype;  // as stored
  FileRange source;
  uint64_t row_stride_bytes;
  uint64_t alignment_bytes;  // of the range's begin, a power of two
  std::vector<Sidecar> sidecars;
  std::optional<WeightId> alias_of;  // tied: the entry that owns the bytes
  ShardPolicy shard;
  tensor::Basis input_basis;
};

/// One projection of every expert of a group.
struct ExpertProjection {
  tensor::Shape shape;  // of one expert: gate, up [I, H]; down [H, I]
  tensor::DType dtype;
  tensor::Basis input_basis;
  IdVector<ExpertId, FileRange> sources;  // one an expert
};

enum class ExpertLayout { kFused, kPerExpert };

/// The routed experts of one layer (contract W4). The same for fused and
/// per-expert files but for the ranges.
struct ExpertGroup {
  LayerId layer;
  int64_t num_experts;
  int64_t top_k;
  int64_t hidden;
  int64_t width;
  ExpertLayout layout;
  ExpertProjection gate;
  ExpertProjection up;
  ExpertProjection down;
  WeightId router;
};

struct SkippedTensor {
  std::string name;
  std::string rule;  // "vision", "mtp"
  Bytes size;
};

class Manifest {
 public:
  const ModelConfig& config() const { return config_; }
  const IdVector<WeightId, WeightEntry>& weights() const { return weights_; }
  /// By layer, ascending; one a layer whose mlp is kMoe.
  const std::vector<ExpertGroup>& expert_groups() const { return groups_; }
  const std::vector<SkippedTensor>& skipped() const { return skipped_; }
  /// Config and headers; equal on every machine (Checkpoint::digest).
  const Digest& digest() const { return digest_; }
  /// The opened files, kept for the load.
  const Checkpoint& checkpoint() const { return *checkpoint_; }

  /// The entry of a role; `layer` unset for the three model-wide roles.
  std::optional<WeightId> Find(Role role, std::optional<LayerId> layer) const;
  const ExpertGroup* FindExperts(LayerId layer) const;
  /// Tensors of the language model and their bytes, experts included, aliases
  /// not counted twice.
  int64_t num_language_tensors() const { return num_language_tensors_; }
  Bytes language_bytes() const { return language_bytes_; }

 private:
  friend class ManifestBuilder;
  Manifest() = default;
  ModelConfig config_;
  IdVector<WeightId, WeightEntry> weights_;
  std::vector<ExpertGroup> groups_;
  std::vector<SkippedTensor> skipped_;
  Digest digest_;
  std::shared_ptr<const Checkpoint> checkpoint_;
  int64_t num_language_tensors_ = 0;
  Bytes language_bytes_;
  std::map<std::pair<Role, std::optional<LayerId>>, WeightId> by_role_;
};

/// Classifies the checkpoint (from its config and the tensors present),
/// consumes every tensor or skips it by a named rule, and proves shapes and
/// dtypes. All refusals at once: unknown and missing names are listed.
Result<std::shared_ptr<const Manifest>> BuildManifest(
    std::shared_ptr<const Checkpoint> checkpoint);

}  // namespace signet::model
