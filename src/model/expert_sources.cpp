#include "model/expert_sources.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <utility>

namespace signet::model {
namespace {

using tensor::Shape;

enum Projection { kGate, kUp, kDown };
constexpr std::array<std::string_view, 3> kStems = {"gate_proj", "up_proj",
                                                    "down_proj"};
constexpr std::string_view kFusedGateUp = "gate_up_proj";
constexpr std::string_view kFusedDown = "down_proj";

struct ExpertTensorName {
  int64_t expert;
  Projection projection;
};

/// Reads `17.up_proj.weight`; unset for any other form.
std::optional<ExpertTensorName> ParseExpertName(std::string_view rest) {
  int64_t expert = 0;
  const auto [end, error] =
      std::from_chars(rest.data(), rest.data() + rest.size(), expert);
  if (error != std::errc() || expert < 0) return std::nullopt;
  for (const Projection projection : {kGate, kUp, kDown}) {
    // Also refuses 017, +17 and the like.
    if (rest == fmt::format("{}.{}.weight", expert, kStems[projection])) {
      return ExpertTensorName{expert, projection};
    }
  }
  return std::nullopt;
}

class SourceFinder {
 public:
  SourceFinder(const DeclaredExperts& experts, TensorSet* tensors)
      : x_(experts), tensors_(*tensors) {
    one_by_one_.fill(std::vector<const HeaderTensor*>(
        static_cast<size_t>(x_.num_experts), nullptr));
  }

  std::optional<ExpertSources> Find() {
    Collect();
    if ((gate_up_ != nullptr || down_ != nullptr) && num_one_by_one_ > 0) {
      tensors_.Refuse(RejectionCode::kExpertSetInvalid,
                      gate_up_ != nullptr ? *gate_up_ : *down_,
                      "a layer holds both fused experts and single ones");
      return std::nullopt;
    }
    if (num_one_by_one_ == 0) return FindFused();
    return FindOneByOne();
  }

 private:
  void Collect() {
    for (const HeaderTensor& tensor : tensors_.WithPrefix(x_.prefix)) {
      const std::string_view rest =
          std::string_view(tensor.name).substr(x_.prefix.size());
      if (rest == kFusedGateUp || rest == kFusedDown) {
        (rest == kFusedDown ? down_ : gate_up_) = &tensor;
      } else if (const auto name = ParseExpertName(rest)) {
        ++num_one_by_one_;
        if (name->expert >= x_.num_experts) {
          tensors_.Refuse(RejectionCode::kExpertSetInvalid, tensor,
                          "there are not that many experts",
                          fmt::format("expert {}", name->expert),
                          fmt::format("{} experts", x_.num_experts));
          ok_ = false;
        } else {
          one_by_one_[name->projection][static_cast<size_t>(name->expert)] =
              &tensor;
        }
      } else {
        continue;  // left for the list of unknown tensors
      }
      tensors_.Take(tensor);
    }
  }

  std::optional<ExpertSources> FindFused() {
    if (gate_up_ == nullptr) {
      tensors_.Missing(x_.prefix + std::string(kFusedGateUp));
    }
    if (down_ == nullptr) tensors_.Missing(x_.prefix + std::string(kFusedDown));
    if (gate_up_ == nullptr || down_ == nullptr) return std::nullopt;

    ok_ &= tensors_.CheckStorage(*gate_up_) & tensors_.CheckStorage(*down_);
    if (gate_up_->shape.size() == 3 && gate_up_->shape[1] % 2 != 0) {
      tensors_.Refuse(RejectionCode::kExpertRowsOdd, *gate_up_,
                      "gate and up cannot be the halves of the rows",
                      fmt::format("{} rows", gate_up_->shape[1]),
                      fmt::format("{} rows", 2 * x_.width));
      ok_ = false;
    } else {
      ok_ &= tensors_.CheckShape(*gate_up_,
                                 {x_.num_experts, 2 * x_.width, x_.hidden});
    }
    ok_ &= tensors_.CheckShape(*down_, {x_.num_experts, x_.hidden, x_.width});
    if (!ok_) return std::nullopt;

    ExpertSources sources = Empty(ExpertLayout::kFused, *gate_up_->dtype,
                                  *gate_up_->dtype, *down_->dtype);
    const uint64_t half_bytes =
        sources.gate.shape.StorageBytes(sources.gate.dtype).value();
    const uint64_t down_bytes =
        sources.down.shape.StorageBytes(sources.down.dtype).value();
    for (int64_t e = 0; e < x_.num_experts; ++e) {
      const uint64_t gate_begin =
          gate_up_->begin_bytes + static_cast<uint64_t>(e) * 2 * half_bytes;
      const uint64_t down_begin =
          down_->begin_bytes + static_cast<uint64_t>(e) * down_bytes;
      sources.gate.sources.Push(
          {gate_up_->file, gate_begin, gate_begin + half_bytes});
      sources.up.sources.Push({gate_up_->file, gate_begin + half_bytes,
                               gate_begin + 2 * half_bytes});
      sources.down.sources.Push(
          {down_->file, down_begin, down_begin + down_bytes});
    }
    return sources;
  }

  std::optional<ExpertSources> FindOneByOne() {
    for (const Projection projection : {kGate, kUp, kDown}) {
      for (size_t e = 0; e < one_by_one_[projection].size(); ++e) {
        CheckOne(projection, e);
      }
    }
    if (!ok_) return std::nullopt;
    // Gate and up are the two halves of one product's rows.
    CheckOneDType({kGate, kUp}, *one_by_one_[kGate][0]);
    CheckOneDType({kDown}, *one_by_one_[kDown][0]);
    if (!ok_) return std::nullopt;

    ExpertSources sources =
        Empty(ExpertLayout::kPerExpert, *one_by_one_[kGate][0]->dtype,
              *one_by_one_[kUp][0]->dtype, *one_by_one_[kDown][0]->dtype);
    for (size_t e = 0; e < one_by_one_[kGate].size(); ++e) {
      sources.gate.sources.Push(RangeOf(*one_by_one_[kGate][e]));
      sources.up.sources.Push(RangeOf(*one_by_one_[kUp][e]));
      sources.down.sources.Push(RangeOf(*one_by_one_[kDown][e]));
    }
    return sources;
  }

  void CheckOne(Projection projection, size_t e) {
    const HeaderTensor* tensor = one_by_one_[projection][e];
    if (tensor == nullptr) {
      tensors_.IncompleteExperts(x_.prefix, e, kStems[projection]);
      ok_ = false;
      return;
    }
    ok_ &= tensors_.CheckStorage(*tensor);
    ok_ &= tensors_.CheckShape(*tensor,
                               projection == kDown ? DownShape() : GateShape());
  }

  void CheckOneDType(std::initializer_list<Projection> projections,
                     const HeaderTensor& first) {
    for (const Projection projection : projections) {
      for (const HeaderTensor* tensor : one_by_one_[projection]) {
        if (tensor->dtype == first.dtype) continue;
        tensors_.Refuse(RejectionCode::kExpertFormatsMixed, *tensor,
                        "the experts of one projection differ in dtype",
                        tensor->dtype_name, first.dtype_name);
        ok_ = false;
      }
    }
  }

  Shape GateShape() const { return {x_.width, x_.hidden}; }
  Shape DownShape() const { return {x_.hidden, x_.width}; }

  ExpertSources Empty(ExpertLayout layout, tensor::DType gate, tensor::DType up,
                      tensor::DType down) const {
    return {layout,
            {GateShape(), gate, x_.gate_up_basis, {}},
            {GateShape(), up, x_.gate_up_basis, {}},
            {DownShape(), down, x_.down_basis, {}}};
  }

  const DeclaredExperts& x_;
  TensorSet& tensors_;
  const HeaderTensor* gate_up_ = nullptr;
  const HeaderTensor* down_ = nullptr;
  std::array<std::vector<const HeaderTensor*>, 3> one_by_one_;
  int64_t num_one_by_one_ = 0;
  bool ok_ = true;
};

}  // namespace

std::optional<ExpertSources> FindExpertSources(const DeclaredExperts& experts,
                                               TensorSet* tensors) {
  return SourceFinder(experts, tensors).Find();
}

}  // namespace signet::model
