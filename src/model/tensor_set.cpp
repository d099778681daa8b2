#include "model/tensor_set.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

namespace signet::model {

const HeaderTensor* TensorSet::Take(std::string_view name) {
  const HeaderTensor* tensor = checkpoint_.Find(name);
  if (tensor != nullptr) Take(*tensor);
  return tensor;
}

void TensorSet::Take(const HeaderTensor& tensor) {
  is_taken_[static_cast<size_t>(&tensor - checkpoint_.tensors().data())] = 1;
}

std::span<const HeaderTensor> TensorSet::WithPrefix(
    std::string_view prefix) const {
  const std::vector<HeaderTensor>& all = checkpoint_.tensors();
  const auto first =
      std::partition_point(all.begin(), all.end(), [&](const HeaderTensor& t) {
        return std::string_view(t.name).substr(0, prefix.size()) < prefix;
      });
  const auto last =
      std::partition_point(first, all.end(), [&](const HeaderTensor& t) {
        return std::string_view(t.name).substr(0, prefix.size()) == prefix;
      });
  return std::span(first, last);
}

std::vector<const HeaderTensor*> TensorSet::Untaken() const {
  std::vector<const HeaderTensor*> untaken;
  for (size_t i = 0; i < is_taken_.size(); ++i) {
    if (!is_taken_[i]) untaken.push_back(&checkpoint_.tensors()[i]);
  }
  return untaken;
}

bool TensorSet::CheckStorage(const HeaderTensor& tensor) {
  if (!tensor.dtype || *tensor.dtype == tensor::DType::kI32) {
    Refuse(RejectionCode::kDTypeUnsupported, tensor,
           "a weight of this dtype is not supported", tensor.dtype_name,
           "BF16, F16 or F32");
    return false;
  }
  if (tensor.begin_bytes % SizeOf(*tensor.dtype) != 0) {
    Refuse(RejectionCode::kTensorMisaligned, tensor,
           "the data does not begin at a multiple of its element size",
           fmt::format("byte {}", tensor.begin_bytes),
           fmt::format("a multiple of {}", SizeOf(*tensor.dtype)));
    return false;
  }
  return true;
}

bool TensorSet::CheckShape(const HeaderTensor& tensor,
                           const tensor::Shape& want) {
  bool equal = static_cast<int>(tensor.shape.size()) == want.num_dims();
  for (int i = 0; equal && i < want.num_dims(); ++i) {
    equal = tensor.shape[static_cast<size_t>(i)] == want[i];
  }
  if (!equal) {
    Refuse(RejectionCode::kTensorShapeMismatch, tensor,
           "the shape is not the one the config states",
           fmt::format("[{}]", fmt::join(tensor.shape, ",")), ToString(want));
  }
  return equal;
}

void TensorSet::Missing(const std::string& name) {
  rejections_->Add(RejectionCode::kTensorMissing,
                   fmt::format("{}: {}", checkpoint_.folder(), name),
                   "the checkpoint does not hold a tensor of the model");
}

void TensorSet::IncompleteExperts(std::string_view prefix, size_t expert,
                                  std::string_view stem) {
  constexpr RejectionCode kCode = RejectionCode::kExpertSetInvalid;
  std::string where;
  if (!rejections_->IsFull(kCode)) {
    where = fmt::format("{}: {}{}.{}.weight", checkpoint_.folder(), prefix,
                        expert, stem);
  }
  rejections_->Add(kCode, std::move(where),
                   "the layer lacks a tensor of one of its experts");
}

void TensorSet::Refuse(RejectionCode code, const HeaderTensor& tensor,
                       std::string message, std::string got, std::string want) {
  const std::string& path = checkpoint_.weight_files()[tensor.file].path();
  rejections_->Add(code, fmt::format("{}: {}", path, tensor.name),
                   std::move(message), std::move(got), std::move(want));
}

}  // namespace signet::model
