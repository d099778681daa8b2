#pragma once
// A routed block for tests: weights whose scores choose experts in use, tokens,
// and the arguments of a call. Only tests include this.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/fused_kernels.h"
#include "tests/conformance/fused_moe_testing.h"
#include "tests/conformance/product_testing.h"

namespace signet::backend::gpu::testing {

struct BlockCase {
  MoeCase moe;
  tensor::DType products =
      tensor::DType::kBF16;  // the weights of all but the experts
  int64_t bad = 2;  // every fifth token from this one on: a score not finite
};

/// The weights of a block.
class Weights {
 public:
  Weights(Numbers& numbers, const BlockCase& block)
      : norm(NormValues(numbers, block.moe.shape.hidden)),
        scores(block.products, ScoreValues(numbers, block.moe)),
        shared_gate(block.products,
                    UniformValues(numbers, block.moe.shape.hidden, 0.03f)),
        gate(numbers, block.products,
             block.moe.shared_width * block.moe.shape.hidden),
        up(numbers, block.products,
           block.moe.shared_width * block.moe.shape.hidden),
        down(numbers, block.products,
             block.moe.shape.hidden * block.moe.shared_width),
        experts(numbers, block.moe.shape, Here(block.moe),
                SpreadIds(block.moe.shape.num_experts, block.moe.in_use)) {}

  Stored norm;
  Stored scores;
  Stored shared_gate;
  Stored gate;
  Stored up;
  Stored down;
  RankExperts experts;

 private:
  // The first column of the input draws experts in use, the second alone makes
  // the score of one expert too large.
  static Stored NormValues(Numbers& numbers, int64_t hidden) {
    std::vector<float> values = UniformValues(numbers, hidden, 0.5f);
    values[0] = values[1] = 0.5f;
    return {tensor::DType::kBF16, values};
  }
  static std::vector<float> ScoreValues(Numbers& numbers, const MoeCase& c) {
    const auto hidden = static_cast<size_t>(c.shape.hidden);
    std::vector<float> values =
        UniformValues(numbers, c.shape.num_experts * c.shape.hidden,
                      2.0f / std::sqrt(static_cast<float>(c.shape.hidden)));
    const auto row = [&](int64_t id) {
      return values.begin() + static_cast<ptrdiff_t>(id * c.shape.hidden);
    };
    for (int64_t e = 0; e < c.shape.num_experts; ++e) {
      row(e)[0] = -1.0f;
      row(e)[1] = 0.0f;
    }
    const std::vector<int32_t> in_use =
        SpreadIds(c.shape.num_experts, c.in_use);
    for (int32_t id : in_use) row(id)[0] = 1.0f;
    row(c.shape.num_experts - 1)[1] = 3e38f;
    // Two experts of equal scores.
    std::copy_n(row(in_use[1]), hidden, row(in_use[2]));
    return values;
  }
};

/// One call's live rows, and what they are.
class Tokens {
 public:
  Tokens(Numbers& numbers, const BlockCase& block, int64_t count)
      : live(count),
        values(Draw(numbers, block, count)),
        rows(count, block.moe.capacity) {}

  int64_t live;
  std::vector<float> values;
  DeviceRows rows;

 private:
  static std::vector<float> Draw(Numbers& numbers, const BlockCase& block,
                                 int64_t live) {
    const int64_t hidden = block.moe.shape.hidden;
    std::vector<float> values = UniformValues(numbers, live * hidden);
    for (int64_t t = 0; t < live; ++t) {
      const auto at = static_cast<size_t>(t * hidden);
      values[at] = 4.0f;
      values[at + 1] = t % 5 == block.bad ? 3.0f : 0.0f;
    }
    return values;
  }
};

/// What a block passes from step to step.
struct Buffers {
  explicit Buffers(const MoeCase& c)
      : normed(c.capacity * c.shape.hidden),
        scores(c.capacity * c.shape.num_experts),
        shared_gate(c.capacity),
        gate(c.capacity * c.shared_width),
        up(c.capacity * c.shared_width),
        shared_act(c.capacity * c.shared_width),
        ids(c.capacity * c.top_k),
        weights(c.capacity * c.top_k),
        expert_gate(c.capacity * c.top_k * c.shape.width),
        expert_up(c.capacity * c.top_k * c.shape.width),
        act(c.capacity * c.top_k * c.shape.width),
        down(c.capacity * c.top_k * c.shape.hidden),
        shared(c.capacity * c.shape.hidden),
        combined(c.capacity * c.shape.hidden),
        reduced(c.capacity * c.shape.hidden),
        gated(c.capacity * c.shape.hidden) {}

  bool CanariesIntact() const {
    return normed.CanariesIntact() && scores.CanariesIntact() &&
           shared_gate.CanariesIntact() && shared_act.CanariesIntact() &&
           ids.CanariesIntact() && weights.CanariesIntact() &&
           act.CanariesIntact();
  }

  DeviceArray<float> normed;
  DeviceArray<float> scores;
  DeviceArray<float> shared_gate;
  DeviceArray<float> gate;
  DeviceArray<float> up;
  DeviceArray<float> shared_act;
  DeviceArray<int32_t> ids;
  DeviceArray<float> weights;
  DeviceArray<float> expert_gate;
  DeviceArray<float> expert_up;
  DeviceArray<float> act;
  DeviceArray<float> down;
  DeviceArray<float> shared;
  DeviceArray<float> combined;
  DeviceArray<float> reduced;
  DeviceArray<float> gated;
};

/// The residual before and after a call, and its flag.
struct Residual {
  Residual(const MoeCase& c, const Tokens& tokens)
      : x(c.capacity * c.shape.hidden),
        out(c.capacity * c.shape.hidden),
        flag(std::vector<int32_t>{8}) {
    x.Set(tokens.values);
  }
  DeviceArray<float> x;
  DeviceArray<float> out;
  DeviceArray<int32_t> flag;
};

inline MoeBlockArgs ArgsOf(const BlockCase& block, Weights& weights,
                           Tokens& tokens, Buffers& b, Residual& residual) {
  const MoeCase& c = block.moe;
  const Rows rows = tokens.rows.view();
  const ExpertTableView table = weights.experts.device();
  const auto product = [&](const float* x, Stored& weight, int64_t weight_rows,
                           int64_t cols, float* out) {
    return ProjectionArgs{.rows = rows,
                          .x = {.data = x},
                          .weight = {.data = weight.data(),
                                     .dtype = block.products,
                                     .rows = weight_rows,
                                     .cols = cols},
                          .out = out};
  };
  const int64_t hidden = c.shape.hidden;
  const auto of_normed = [&](Stored& weight, int64_t weight_rows, float* out) {
    return product(b.normed.data(), weight, weight_rows, hidden, out);
  };
  MoeBlockArgs args;
  args.products.norm = {
      .rows = rows,
      .x = residual.x.data(),
      .weight = {weights.norm.data(), tensor::DType::kBF16, hidden},
      .width = hidden,
      .out = b.normed.data()};
  args.products.products = {
      of_normed(weights.scores, c.shape.num_experts, b.scores.data()),
      of_normed(weights.shared_gate, 1, b.shared_gate.data()),
      of_normed(weights.gate, c.shared_width, b.gate.data()),
      of_normed(weights.up, c.shared_width, b.up.data())};
  args.products.num_products = 4;
  args.products.keep_normed = true;
  args.products.activated = true;
  args.products.activation = {.rows = rows,
                              .multiple = 1,
                              .width = c.shared_width,
                              .gate = b.gate.data(),
                              .up = b.up.data(),
                              .out = b.shared_act.data()};
  args.experts = {.route = {.rows = rows,
                            .num_experts = c.shape.num_experts,
                            .top_k = c.top_k,
                            .renormalise = c.renormalise,
                            .scores = b.scores.data(),
                            .ids = b.ids.data(),
                            .weights = b.weights.data(),
                            .flag = residual.flag.data()},
                  .gate_up = {.rows = rows,
                              .top_k = c.top_k,
                              .table = table,
                              .ids = b.ids.data(),
                              .x = b.normed.data(),
                              .gate = b.expert_gate.data(),
                              .up = b.expert_up.data()},
                  .activation = {.rows = rows,
                                 .multiple = c.top_k,
                                 .width = c.shape.width,
                                 .gate = b.expert_gate.data(),
                                 .up = b.expert_up.data(),
                                 .out = b.act.data()}};
  args.tail = {.down = {.rows = rows,
                        .top_k = c.top_k,
                        .table = table,
                        .ids = b.ids.data(),
                        .act = b.act.data(),
                        .out = b.down.data()},
               .shared_down = product(b.shared_act.data(), weights.down, hidden,
                                      c.shared_width, b.shared.data()),
               .combine = {.rows = rows,
                           .top_k = c.top_k,
                           .num_experts = c.shape.num_experts,
                           .lanes = c.lanes,
                           .first_lane = c.first_lane,
                           .num_lanes = c.num_lanes,
                           .width = hidden,
                           .ids = b.ids.data(),
                           .weights = b.weights.data(),
                           .d = b.down.data(),
                           .global_to_local = table.global_to_local,
                           .out = b.combined.data()},
               .reduce = {.rows = rows,
                          .width = hidden,
                          .x = b.combined.data(),
                          .out = b.reduced.data()},
               .gated = {.rows = rows,
                         .width = hidden,
                         .addend = b.reduced.data(),
                         .gate = b.shared_gate.data(),
                         .x = b.shared.data(),
                         .out = b.gated.data()},
               .add = {.rows = rows,
                       .width = hidden,
                       .residual = residual.x.data(),
                       .addend = b.gated.data(),
                       .out = residual.out.data()}};
  return args;
}

}  // namespace signet::backend::gpu::testing
