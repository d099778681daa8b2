#pragma once
// What tests of indexed experts share: the experts of one rank, as stored on
// the device and as f32 on the host, where only those in use have weights. Only
// tests include this.

#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "tests/conformance/product_testing.h"

namespace signet::backend::gpu::testing {

struct ExpertShape {
  int64_t num_experts = 0;
  int64_t hidden = 0;
  int64_t width = 0;
  tensor::DType gate = tensor::DType::kBF16;
  tensor::DType up = tensor::DType::kBF16;
  tensor::DType down = tensor::DType::kBF16;
};

/// The experts of `global_to_local`; those of `ids` have weights, the pointers
/// of all others are null, so that touching them is seen.
class RankExperts {
 public:
  RankExperts(Numbers& numbers, const ExpertShape& shape,
              std::vector<int32_t> global_to_local,
              std::span<const int32_t> ids)
      : shape_(shape), map_(std::move(global_to_local)) {
    int64_t num_local = 0;
    for (int32_t local : map_) num_local += local >= 0 ? 1 : 0;
    host_.resize(static_cast<size_t>(num_local));
    std::vector<ExpertPointers> device(static_cast<size_t>(num_local));
    const int64_t count = shape.hidden * shape.width;
    for (int32_t id : std::set<int32_t>(ids.begin(), ids.end())) {
      const int32_t local = id < 0 ? -1 : map_[static_cast<size_t>(id)];
      if (local < 0) continue;
      const auto add = [&](tensor::DType dtype) {
        matrices_.push_back(std::make_unique<Stored>(numbers, dtype, count));
        return matrices_.back().get();
      };
      Stored* gate = add(shape.gate);
      Stored* up = add(shape.up);
      Stored* down = add(shape.down);
      const auto at = static_cast<size_t>(local);
      device[at] = {gate->data(), up->data(), down->data()};
      host_[at] = {gate->values().data(), up->values().data(),
                   down->values().data()};
    }
    device_map_ = std::make_unique<DeviceArray<int32_t>>(map_);
    device_ = std::make_unique<DeviceArray<ExpertPointers>>(device);
  }

  ExpertTableView device() {
    return View(device_->data(), device_map_->data(), shape_.gate, shape_.up,
                shape_.down);
  }
  ExpertTableView host() const {
    return View(host_.data(), map_.data(), tensor::DType::kF32,
                tensor::DType::kF32, tensor::DType::kF32);
  }
  bool Computes(int32_t id) const {
    return id >= 0 && map_[static_cast<size_t>(id)] >= 0;
  }

 private:
  ExpertTableView View(const ExpertPointers* experts, const int32_t* map,
                       tensor::DType gate, tensor::DType up,
                       tensor::DType down) const {
    return {.experts = experts,
            .global_to_local = map,
            .num_experts = shape_.num_experts,
            .num_local = static_cast<int64_t>(host_.size()),
            .hidden = shape_.hidden,
            .width = shape_.width,
            .gate_dtype = gate,
            .up_dtype = up,
            .down_dtype = down};
  }

  ExpertShape shape_;
  std::vector<int32_t> map_;
  std::vector<std::unique_ptr<Stored>> matrices_;
  std::vector<ExpertPointers> host_;
  std::unique_ptr<DeviceArray<int32_t>> device_map_;
  std::unique_ptr<DeviceArray<ExpertPointers>> device_;
};

/// Every expert is here.
inline std::vector<int32_t> AllHere(int64_t num_experts) {
  std::vector<int32_t> map(static_cast<size_t>(num_experts));
  for (size_t e = 0; e < map.size(); ++e) map[e] = static_cast<int32_t>(e);
  return map;
}

/// Experts of [begin, end) are here.
inline std::vector<int32_t> SomeHere(int64_t num_experts, int64_t begin,
                                     int64_t end) {
  std::vector<int32_t> map(static_cast<size_t>(num_experts), -1);
  for (int64_t e = begin; e < end; ++e) {
    map[static_cast<size_t>(e)] = static_cast<int32_t>(e - begin);
  }
  return map;
}

inline std::vector<float> UniformValues(Numbers& numbers, int64_t count,
                                        float scale = 1.0f) {
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = scale * numbers.Uniform();
  return values;
}

/// Ids of `live` tokens, distinct within a row, among `choices`; every fifth
/// token is absent when `some_absent`.
inline std::vector<int32_t> DrawnIds(Numbers& numbers, int64_t live,
                                     int64_t top_k,
                                     std::span<const int32_t> choices,
                                     bool some_absent = false) {
  std::vector<int32_t> ids;
  for (int64_t t = 0; t < live; ++t) {
    std::vector<int32_t> left(choices.begin(), choices.end());
    for (int64_t k = 0; k < top_k; ++k) {
      const auto at =
          static_cast<size_t>(numbers.Below(static_cast<int64_t>(left.size())));
      ids.push_back(some_absent && t % 5 == 2 ? -1 : left[at]);
      left.erase(left.begin() + static_cast<int64_t>(at));
    }
  }
  return ids;
}

/// `count` experts spread over all of them.
inline std::vector<int32_t> SpreadIds(int64_t num_experts, int64_t count) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < count; ++i) {
    ids.push_back(static_cast<int32_t>(i * num_experts / count));
  }
  return ids;
}

}  // namespace signet::backend::gpu::testing
