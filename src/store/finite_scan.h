#pragma once
// Weights that are not numbers, found before anything is computed with them:
// one NaN in a norm or a router is a NaN in every token after it. One thread.

#include <cstddef>
#include <set>
#include <span>

#include "base/result.h"
#include "model/checkpoint.h"
#include "model/manifest.h"
#include "model/rejection_cap.h"
#include "tensor/dtype.h"

namespace signet::store {

/// Which weights are proven finite at load.
enum class Scan { kSensitive, kEverything };

class FiniteScan {
 public:
  /// `checkpoint` must outlive the scan.
  explicit FiniteScan(const model::Checkpoint& checkpoint);

  /// `bytes`: whole elements of one tensor, read from `range`.
  void Check(const model::FileRange& range, tensor::DType dtype,
             std::span<const std::byte> bytes);
  /// kWeightNotFinite for every tensor in which something was found, with the
  /// index of the first of it. Once.
  Result<void> Finish();

 private:
  void Note(const model::FileRange& range, tensor::DType dtype,
            const std::byte* data);
  const model::Checkpoint& checkpoint_;
  std::set<const model::HeaderTensor*> named_;
  model::CappedRejections rejections_;
};

}  // namespace signet::store
