#pragma once
// The tensors of a checkpoint while a manifest is made: each is taken once,
// and what nobody took is an error (contract W1). Borrows the checkpoint; one
// thread.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/checkpoint.h"
#include "model/manifest.h"
#include "model/rejection_cap.h"

namespace signet::model {

class TensorSet {
 public:
  TensorSet(const Checkpoint& checkpoint, CappedRejections* rejections)
      : checkpoint_(checkpoint),
        rejections_(rejections),
        is_taken_(checkpoint.tensors().size(), 0) {}

  /// Marks the tensor as consumed; null when the checkpoint has none.
  const HeaderTensor* Take(std::string_view name);
  /// The same for a tensor of this set.
  void Take(const HeaderTensor& tensor);
  /// All tensors whose name begins so, ascending.
  std::span<const HeaderTensor> WithPrefix(std::string_view prefix) const;
  std::vector<const HeaderTensor*> Untaken() const;

  /// Notes what is wrong with a weight's dtype or alignment; true if nothing.
  bool CheckStorage(const HeaderTensor& tensor);
  /// Notes a shape that is not `want`; true if it is.
  bool CheckShape(const HeaderTensor& tensor, const tensor::Shape& want);
  void Missing(const std::string& name);
  /// One expert's tensor is missing where others of its layer are there.
  void IncompleteExperts(std::string_view prefix, size_t expert,
                         std::string_view stem);
  void Refuse(RejectionCode code, const HeaderTensor& tensor,
              std::string message, std::string got = {}, std::string want = {});

 private:
  const Checkpoint& checkpoint_;
  CappedRejections* rejections_;
  std::vector<char> is_taken_;
};

/// The range of the file that holds a tensor.
inline FileRange RangeOf(const HeaderTensor& tensor) {
  return {tensor.file, tensor.begin_bytes, tensor.end_bytes};
}

}  // namespace signet::model
