#include "exec/block_reference.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

namespace signet::testing {
namespace {

using Vector = std::vector<double>;

size_t Index(int64_t i) { return static_cast<size_t>(i); }

// The row-major matrix [rows, x.size()] at `offset`, times x.
Vector Multiply(const OracleTensor& tensor, int64_t offset, int64_t rows,
                const Vector& x) {
  Vector y(Index(rows));
  for (size_t r = 0; r < y.size(); ++r) {
    const double* row = tensor.data.data() + Index(offset) + r * x.size();
    y[r] = std::inner_product(x.begin(), x.end(), row, 0.0);
  }
  return y;
}

Vector Row(const BlockCall& call, int64_t t) {
  const size_t hidden = call.x.size() / Index(call.live);
  const auto begin =
      call.x.begin() + static_cast<std::ptrdiff_t>(Index(t) * hidden);
  return {begin, begin + static_cast<std::ptrdiff_t>(hidden)};
}

}  // namespace

BlockCall BlockRows(int64_t live, int64_t hidden, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  BlockCall call = {.live = live};
  for (int64_t i = 0; i < live * hidden; ++i) call.x.push_back(normal(random));
  return call;
}

BlockCall RoutedRows(int64_t live, int64_t hidden, int64_t experts,
                     int64_t top_k, uint64_t seed) {
  BlockCall call = BlockRows(live, hidden, seed);
  std::mt19937_64 random(seed + 1);
  std::uniform_real_distribution<float> uniform(0.1f, 1.0f);
  std::vector<int32_t> all(Index(experts));
  std::iota(all.begin(), all.end(), 0);
  for (int64_t t = 0; t < live; ++t) {
    std::shuffle(all.begin(), all.end(), random);
    std::vector<float> weights;
    for (int64_t k = 0; k < top_k; ++k) {
      call.ids.push_back(all[Index(k)]);
      weights.push_back(uniform(random));
    }
    const float sum = std::accumulate(weights.begin(), weights.end(), 0.0f);
    for (const float weight : weights) call.weights.push_back(weight / sum);
  }
  return call;
}

std::vector<double> NaiveBlock(const OracleModel& model,
                               const BlockCall& call) {
  const OracleTensor& gate_up =
      model.tensors.at("layers.0.mlp.experts.gate_up_proj");
  const OracleTensor& down = model.tensors.at("layers.0.mlp.experts.down_proj");
  const int64_t hidden = model.config.hidden;
  const int64_t width = down.shape[2];
  const int64_t top_k = model.config.experts_per_token;
  std::vector<double> result;
  for (int64_t t = 0; t < call.live; ++t) {
    const Vector x = Row(call, t);
    Vector y(Index(hidden), 0.0);
    for (int64_t k = 0; k < top_k; ++k) {
      const int64_t expert = call.ids[Index(t * top_k + k)];
      const Vector both =
          Multiply(gate_up, expert * 2 * width * hidden, 2 * width, x);
      Vector act(Index(width));
      for (size_t i = 0; i < act.size(); ++i) {
        const double gate = both[i];
        act[i] = gate / (1.0 + std::exp(-gate)) * both[act.size() + i];
      }
      const Vector d = Multiply(down, expert * hidden * width, hidden, act);
      const double weight = call.weights[Index(t * top_k + k)];
      for (size_t i = 0; i < y.size(); ++i) y[i] += weight * d[i];
    }
    result.insert(result.end(), y.begin(), y.end());
  }
  return result;
}

void RouteNaively(const OracleModel& model, BlockCall* call) {
  const OracleTensor& router = model.tensors.at("layers.0.mlp.gate.weight");
  const int64_t top_k = model.config.experts_per_token;
  for (int64_t t = 0; t < call->live; ++t) {
    const Vector scores =
        Multiply(router, 0, model.config.experts, Row(*call, t));
    std::vector<int32_t> ids(scores.size());
    std::iota(ids.begin(), ids.end(), 0);
    std::stable_sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) {
      return scores[Index(a)] > scores[Index(b)];
    });
    double sum = 0;
    for (int64_t k = 0; k < top_k; ++k) {
      sum += std::exp(scores[Index(ids[Index(k)])] - scores[Index(ids[0])]);
    }
    for (int64_t k = 0; k < top_k; ++k) {
      const int32_t id = ids[Index(k)];
      call->ids.push_back(id);
      call->weights.push_back(static_cast<float>(
          std::exp(scores[Index(id)] - scores[Index(ids[0])]) / sum));
    }
  }
}

double WorstRow(const std::vector<float>& got, const std::vector<double>& want,
                int64_t hidden) {
  if (got.size() != want.size()) return INFINITY;
  double worst = 0;
  for (size_t row = 0; row < got.size(); row += Index(hidden)) {
    double difference = 0;
    double norm = 0;
    for (size_t i = row; i < row + Index(hidden); ++i) {
      difference += (got[i] - want[i]) * (got[i] - want[i]);
      norm += want[i] * want[i];
    }
    const double error = std::sqrt(difference / norm);
    if (!(error <= worst)) worst = error;  // a NaN too
  }
  return worst;
}

}  // namespace signet::testing
