#pragma once
// Weights that are not numbers, found before anything is computed with them:
// one NaN in a norm or a router is a NaN in every token after it. Reads through
// the opened file and not through its mapping, so that a file cut short
// meanwhile is a Failure and no signal. One thread.

#include <cstddef>
#include <set>
#include <vector>

#include "base/result.h"
#include "model/checkpoint.h"
#include "model/manifest.h"
#include "model/rejection_cap.h"
#include "tensor/dtype.h"

namespace signet::store {

/// Which weights are proven finite at load.
enum class Scan { kSensitive, kEverything };

/// Whether every token meets each element of a weight of this role: norms,
/// routers, and the decays of the recurrent state. They are few and small, so
/// they are always scanned.
bool IsSensitive(model::Role role);

class FiniteScan {
 public:
  /// `checkpoint` must outlive the scan.
  explicit FiniteScan(const model::Checkpoint& checkpoint);

  /// Scans whole elements within one tensor. kIo, kChangedFile.
  Result<void> Read(const model::FileRange& range, tensor::DType dtype);
  /// kWeightNotFinite for every tensor in which something was found, with the
  /// index of the first of it. Once.
  Result<void> Finish();

 private:
  void Note(const model::FileRange& range, tensor::DType dtype);
  const model::Checkpoint& checkpoint_;
  std::vector<std::byte> piece_;
  std::set<const model::HeaderTensor*> named_;
  model::CappedRejections rejections_;
};

}  // namespace signet::store
