#pragma once
// What would be placed where: made from headers alone, before any weight is
// read or any device memory taken. Holds the sealed programs. A cheap shared
// handle; any thread.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "signet/error.h"
#include "signet/source.h"
#include "signet/world.h"

namespace signet {

/// How a tp axis spreads the routed experts: a slice of each on every rank, or
/// each owned by one.
enum class TpExperts { kSplit, kOwned };

enum class KvType { kDefault, kF32, kBF16 };  // default: f32 on the CPU

struct PlanOptions {
  std::string mesh = "single";  // `single`, `ep=2`, `tp=2`, `pp=2,ep=2`
  std::string devices;          // `cpu`, `cpu:0,cpu:1`; empty: chosen, printed
  int64_t context = 4096;       // positions a sequence may hold
  int64_t batch = 1;            // sequences decoded at once
  KvType kv = KvType::kDefault;
  int64_t page_tokens = 64;
  std::vector<int64_t> decode_buckets;  // empty: powers of two up to batch
  std::vector<int64_t> prefill_chunks;  // empty: 32, 128, 512
  bool all_logits = false;              // of every row of a prefill chunk
  TpExperts tp_experts = TpExperts::kSplit;
  /// Set: the mesh's ranks are the processes of the world, and this one plans
  /// for all, as each of them does. Unset: all ranks are threads here.
  std::optional<World> world;
};

enum class ShapeKind { kDecode, kPrefill };

/// What was sealed for a plan, over all ranks and shapes, and how long it took.
struct SealingFigures {
  int64_t programs = 0;
  int64_t steps = 0;
  double milliseconds = 0;  // of the sealing alone
};

class Plan {
 public:
  /// Admission, plan, lowering and sealing. Fails with every rejection of the
  /// first stage that refuses. What the plan would need and the machine lacks
  /// is not a failure here: the plan exists and Admission() says what is short.
  /// Failure: kMemory, for the plan itself; kDevice and kState in a world.
  static Result<Plan> Make(const Source& source, const PlanOptions& options);

  /// kMemoryShort, with the shortfall a device and class, when the plan does
  /// not fit when it was made. Engine::Load asks again.
  Result<void> Admission() const;
  /// 32 hexadecimal digits; valid, as the next, as long as a handle on this
  /// plan.
  const std::string& contract_id() const;
  SealingFigures sealing() const;
  /// `cpu:0`, ... in rank order.
  const std::vector<std::string>& devices() const;
  /// The whole plan for people. Failure: kMemory.
  Result<std::string> Text() const;
  /// The same as one JSON object. Failure: kMemory.
  Result<std::string> Json() const;
  /// The sealed program of a rank: the smallest decode bucket that holds
  /// `rows` sequences, or the smallest prefill chunk that holds `rows` tokens
  /// (0: the largest). kPlanOptionInvalid for a rank or a number of rows that
  /// the plan has no program for.
  Result<std::string> ProgramText(int rank, ShapeKind kind, int64_t rows) const;

  struct Impl;

 private:
  friend class Engine;
  static Result<Plan> MakeHere(const Source& source,
                               const PlanOptions& options);
  static Result<Plan> MakeTogether(const Source& source,
                                   const PlanOptions& options);
  explicit Plan(std::shared_ptr<const Impl> impl);
  std::shared_ptr<const Impl> impl_;
};

}  // namespace signet
