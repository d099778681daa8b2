#pragma once
// Loading as a transaction (contract T1): map, read, build tables, commit; or
// everything is given back. Nothing is visible before Commit. One thread.

#include <memory>
#include <optional>
#include <vector>

#include "backend/device.h"
#include "base/digest.h"
#include "base/result.h"
#include "plan/model_plan.h"
#include "store/finite_scan.h"
#include "store/rank_loader.h"
#include "store/weight_version.h"

namespace signet::store {

class LoadTransaction {
 public:
  using Progress = store::Progress;

  /// `devices`, one a rank, must outlive the committed version; the first maps
  /// the files. A rank without a device runs in another process, and nothing
  /// of it is loaded here; at least one has one. The files are those the
  /// manifest holds open, never re-opened by path (A3).
  LoadTransaction(std::shared_ptr<const plan::ModelPlan> plan,
                  std::vector<backend::Device*> devices);
  /// Rolls back what is not committed.
  ~LoadTransaction() = default;
  LoadTransaction(const LoadTransaction&) = delete;
  LoadTransaction& operator=(const LoadTransaction&) = delete;

  /// Maps every weight file, brings the weights' pages in and gives each rank
  /// what it holds; digests a whole model where it goes to GPUs, or `scan` is
  /// of everything. kChangedFile when a file is no longer the one that was
  /// opened, kWeightNotFinite for what `scan` finds. `progress` may be empty.
  Result<void> Read(const Progress& progress, Scan scan = Scan::kSensitive);
  /// Commits the tables of every rank, then publishes them at one stroke. Only
  /// after Read; ends the transaction.
  Result<std::shared_ptr<const WeightVersion>> Commit() &&;

 private:
  std::vector<Rank> RanksHere() const;
  // Brings the pages of what the ranks here hold in, on a CPU, and scans it.
  Result<void> ReadRanges(bool populate, Scan scan, const Progress& progress);
  // T4: as many entries as the rank owns, each within memory of its device.
  Result<void> CommitTables(Rank rank);
  std::shared_ptr<const plan::ModelPlan> plan_;
  std::vector<backend::Device*> devices_;
  std::optional<Digest> content_;
  IdVector<FileId, backend::FileMapping> mappings_;
  std::vector<WeightVersion::RankWeights> ranks_;
};

}  // namespace signet::store
