#include "tests/support/oracle.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numeric>

namespace signet::testing {
namespace {

using Vector = std::vector<double>;

size_t Index(int64_t i) { return static_cast<size_t>(i); }

double Sigmoid(double x) {
  if (x >= 0) return 1.0 / (1.0 + std::exp(-x));
  return std::exp(x) / (1.0 + std::exp(x));
}

double Silu(double x) { return x * Sigmoid(x); }

double Softplus(double x) { return x > 20.0 ? x : std::log1p(std::exp(x)); }

// y = W x for the row-major matrix [rows, x.size()] that starts at `offset`.
Vector Multiply(const OracleTensor& matrix, int64_t offset, int64_t rows,
                const Vector& x) {
  const auto columns = static_cast<int64_t>(x.size());
  Vector y(Index(rows));
  for (int64_t r = 0; r < rows; ++r) {
    double sum = 0;
    for (int64_t c = 0; c < columns; ++c) {
      sum += matrix.data[Index(offset + r * columns + c)] * x[Index(c)];
    }
    y[Index(r)] = sum;
  }
  return y;
}

void AddTo(Vector& x, const Vector& y) {
  for (size_t i = 0; i < x.size(); ++i) x[i] += y[i];
}

double SumOfSquares(const Vector& x, int64_t offset, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    sum += x[Index(offset + i)] * x[Index(offset + i)];
  }
  return sum;
}

// x / sqrt(sum x^2 + 1e-6) * scale: a sum, not a mean.
void L2Normalize(Vector& x, int64_t offset, int64_t count, double scale) {
  const double norm = std::sqrt(SumOfSquares(x, offset, count) + 1e-6);
  for (int64_t i = 0; i < count; ++i) x[Index(offset + i)] *= scale / norm;
}

Vector Slice(const Vector& x, int64_t begin, int64_t end) {
  return Vector(x.begin() + begin, x.begin() + end);
}

// The ids of the `count` highest scores, higher first, then the lower id.
std::vector<int32_t> TopIds(const Vector& scores, int64_t count) {
  std::vector<int32_t> ids(scores.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::stable_sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) {
    return scores[Index(a)] > scores[Index(b)];
  });
  ids.resize(Index(count));
  return ids;
}

}  // namespace

Oracle::Oracle(const OracleModel& model)
    : model_(model), config_(model.config) {
  for (int64_t i = 0; i < config_.rotary_dims; i += 2) {
    // The exponent, the power and the quotient are each rounded to fp32.
    const float exponent =
        static_cast<float>(i) / static_cast<float>(config_.rotary_dims);
    const auto power = static_cast<float>(
        std::pow(config_.rope_theta, static_cast<double>(exponent)));
    inverse_frequency_.push_back(1.0f / power);
  }
  for (int64_t layer = 0; layer < config_.layers(); ++layer) {
    if (config_.is_full_attention[Index(layer)]) {
      keys_[layer] = {};
      values_[layer] = {};
    } else {
      recurrent_[layer].assign(
          Index(config_.linear_value_heads * config_.linear_key_dim *
                config_.linear_value_dim),
          0.0);
      conv_[layer].assign(
          Index(Weight(layer, "linear_attn.conv1d.weight").shape[0] *
                (config_.conv_width - 1)),
          0.0);
    }
  }
}

const Vector& Oracle::Recurrent(int64_t layer) const {
  return recurrent_.at(layer);
}
const Vector& Oracle::Conv(int64_t layer) const { return conv_.at(layer); }
const Vector& Oracle::Keys(int64_t layer) const { return keys_.at(layer); }
const Vector& Oracle::Values(int64_t layer) const { return values_.at(layer); }

const OracleTensor& Oracle::Weight(int64_t layer,
                                   const std::string& name) const {
  const std::string full = "layers." + std::to_string(layer) + "." + name;
  const auto found = model_.tensors.find(full);
  if (found == model_.tensors.end()) {
    std::fprintf(stderr, "oracle: no tensor %s\n", full.c_str());
    std::abort();
  }
  return found->second;
}

Vector Oracle::Project(int64_t layer, const std::string& name,
                       const Vector& x) const {
  const OracleTensor& matrix = Weight(layer, name + ".weight");
  return Multiply(matrix, 0, matrix.shape[0], x);
}

void Oracle::CentredNorm(Vector& x, int64_t offset,
                         const OracleTensor& weight) const {
  const int64_t count = weight.shape[0];
  const double mean =
      SumOfSquares(x, offset, count) / static_cast<double>(count);
  const double root = std::sqrt(mean + config_.epsilon);
  for (int64_t i = 0; i < count; ++i) {
    x[Index(offset + i)] *= (1.0 + weight.data[Index(i)]) / root;
  }
}

void Oracle::Rope(Vector& x, int64_t offset) const {
  const auto half = static_cast<int64_t>(inverse_frequency_.size());
  for (int64_t i = 0; i < half; ++i) {
    const float angle =
        static_cast<float>(position_) * inverse_frequency_[Index(i)];
    const double cosine = std::cos(static_cast<double>(angle));
    const double sine = std::sin(static_cast<double>(angle));
    double& low = x[Index(offset + i)];
    double& high = x[Index(offset + i + half)];
    const double rotated = low * cosine - high * sine;
    high = high * cosine + low * sine;
    low = rotated;
  }
}

Vector Oracle::Attention(int64_t layer, const Vector& x) {
  const int64_t heads = config_.attention_heads;
  const int64_t kv_heads = config_.kv_heads;
  const int64_t d = config_.head_dim;
  // [heads, 2, d]: each head's query, then the same head's gate.
  Vector query_and_gate = Project(layer, "self_attn.q_proj", x);
  Vector k = Project(layer, "self_attn.k_proj", x);        // [kv_heads, d]
  const Vector v = Project(layer, "self_attn.v_proj", x);  // [kv_heads, d]
  for (int64_t h = 0; h < kv_heads; ++h) {
    CentredNorm(k, h * d, Weight(layer, "self_attn.k_norm.weight"));
    Rope(k, h * d);
  }
  Vector& keys = keys_[layer];
  Vector& values = values_[layer];
  keys.insert(keys.end(), k.begin(), k.end());
  values.insert(values.end(), v.begin(), v.end());

  Vector out(Index(heads * d), 0.0);
  for (int64_t h = 0; h < heads; ++h) {
    const int64_t q = h * 2 * d;
    const int64_t gate = q + d;
    CentredNorm(query_and_gate, q, Weight(layer, "self_attn.q_norm.weight"));
    Rope(query_and_gate, q);

    const int64_t kv_head = h / (heads / kv_heads);
    Vector score(Index(position_ + 1), 0.0);
    for (int64_t t = 0; t <= position_; ++t) {
      const int64_t row = (t * kv_heads + kv_head) * d;
      for (int64_t i = 0; i < d; ++i) {
        score[Index(t)] += query_and_gate[Index(q + i)] * keys[Index(row + i)];
      }
      score[Index(t)] /= std::sqrt(static_cast<double>(d));
    }
    const double highest = *std::max_element(score.begin(), score.end());
    double sum = 0;
    for (double& s : score) {
      s = std::exp(s - highest);
      sum += s;
    }
    for (int64_t t = 0; t <= position_; ++t) {
      const int64_t row = (t * kv_heads + kv_head) * d;
      for (int64_t i = 0; i < d; ++i) {
        out[Index(h * d + i)] += score[Index(t)] / sum * values[Index(row + i)];
      }
    }
    for (int64_t i = 0; i < d; ++i) {
      out[Index(h * d + i)] *= Sigmoid(query_and_gate[Index(gate + i)]);
    }
  }
  return Project(layer, "self_attn.o_proj", out);
}

// silu of the depthwise causal convolution; shifts u into the state.
Vector Oracle::Convolve(int64_t layer, const Vector& u) {
  const int64_t width = config_.conv_width;
  const OracleTensor& taps = Weight(layer, "linear_attn.conv1d.weight");
  Vector& state = conv_[layer];  // [C, width - 1]
  Vector c(u.size());
  for (int64_t channel = 0; channel < taps.shape[0]; ++channel) {
    const int64_t past = channel * (width - 1);
    Vector window = Slice(state, past, past + width - 1);
    window.push_back(u[Index(channel)]);
    double sum = 0;
    for (int64_t j = 0; j < width; ++j) {
      sum += taps.data[Index(channel * width + j)] * window[Index(j)];
    }
    c[Index(channel)] = Silu(sum);
    std::copy(window.begin() + 1, window.end(), state.begin() + past);
  }
  return c;
}

Vector Oracle::DeltaNet(int64_t layer, const Vector& x) {
  const int64_t key_heads = config_.linear_key_heads;
  const int64_t value_heads = config_.linear_value_heads;
  const int64_t dk = config_.linear_key_dim;
  const int64_t dv = config_.linear_value_dim;
  const int64_t key_dim = key_heads * dk;

  const Vector c =
      Convolve(layer, Project(layer, "linear_attn.in_proj_qkv", x));
  const Vector z = Project(layer, "linear_attn.in_proj_z", x);
  const Vector b = Project(layer, "linear_attn.in_proj_b", x);
  const Vector a = Project(layer, "linear_attn.in_proj_a", x);
  const Vector& a_log = Weight(layer, "linear_attn.A_log").data;
  const Vector& dt_bias = Weight(layer, "linear_attn.dt_bias").data;
  const Vector& norm = Weight(layer, "linear_attn.norm.weight").data;

  Vector q = Slice(c, 0, key_dim);            // [key_heads, dk]
  Vector k = Slice(c, key_dim, 2 * key_dim);  // [key_heads, dk]
  const Vector v =                            // [value_heads, dv]
      Slice(c, 2 * key_dim, 2 * key_dim + value_heads * dv);
  for (int64_t h = 0; h < key_heads; ++h) {
    L2Normalize(q, h * dk, dk, 1.0 / std::sqrt(static_cast<double>(dk)));
    L2Normalize(k, h * dk, dk, 1.0);
  }

  Vector out(Index(value_heads * dv), 0.0);
  for (int64_t h = 0; h < value_heads; ++h) {
    const int64_t key = h / (value_heads / key_heads) * dk;
    const double beta = Sigmoid(b[Index(h)]);
    const double decay = std::exp(-std::exp(a_log[Index(h)]) *
                                  Softplus(a[Index(h)] + dt_bias[Index(h)]));
    double* const state = recurrent_[layer].data() + h * dk * dv;  // [dk, dv]
    for (int64_t i = 0; i < dk * dv; ++i) state[i] *= decay;
    for (int64_t j = 0; j < dv; ++j) {
      double read = 0;  // (S^T k)[j], after the decay
      for (int64_t i = 0; i < dk; ++i) {
        read += state[i * dv + j] * k[Index(key + i)];
      }
      const double delta = beta * (v[Index(h * dv + j)] - read);
      for (int64_t i = 0; i < dk; ++i) {
        state[i * dv + j] += k[Index(key + i)] * delta;
        out[Index(h * dv + j)] += state[i * dv + j] * q[Index(key + i)];
      }
    }
    // Gated norm: normalise, plain weight, then the gate.
    const double mean = SumOfSquares(out, h * dv, dv) / static_cast<double>(dv);
    const double root = std::sqrt(mean + config_.epsilon);
    for (int64_t j = 0; j < dv; ++j) {
      out[Index(h * dv + j)] *=
          norm[Index(j)] / root * Silu(z[Index(h * dv + j)]);
    }
  }
  return Project(layer, "linear_attn.out_proj", out);
}

Vector Oracle::DenseMlp(int64_t layer, const std::string& prefix,
                        const Vector& x) const {
  Vector activated = Project(layer, prefix + "gate_proj", x);
  const Vector up = Project(layer, prefix + "up_proj", x);
  for (size_t i = 0; i < up.size(); ++i) {
    activated[i] = Silu(activated[i]) * up[i];
  }
  return Project(layer, prefix + "down_proj", activated);
}

Vector Oracle::Expert(int64_t layer, int64_t expert, const Vector& x) const {
  const OracleTensor& gate_up = Weight(layer, "mlp.experts.gate_up_proj");
  const OracleTensor& down = Weight(layer, "mlp.experts.down_proj");
  const int64_t hidden = config_.hidden;
  const int64_t width = down.shape[2];
  const Vector both =  // [2 * width]: gate, then up
      Multiply(gate_up, expert * 2 * width * hidden, 2 * width, x);
  Vector activated(Index(width));
  for (int64_t i = 0; i < width; ++i) {
    activated[Index(i)] = Silu(both[Index(i)]) * both[Index(width + i)];
  }
  return Multiply(down, expert * hidden * width, hidden, activated);
}

Vector Oracle::Moe(int64_t layer, const Vector& x,
                   const std::vector<int32_t>* forced, OracleStep& step) const {
  const Vector scores = Project(layer, "mlp.gate", x);
  const std::vector<int32_t> ids =
      forced != nullptr ? *forced : TopIds(scores, config_.experts_per_token);
  const double highest = *std::max_element(scores.begin(), scores.end());
  // softmax over all E, then renormalised over the K: the E-sum cancels.
  Vector weights;
  for (const int32_t id : ids) {
    weights.push_back(std::exp(scores[Index(id)] - highest));
  }
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  Vector y(x.size(), 0.0);
  for (size_t k = 0; k < ids.size(); ++k) {
    weights[k] /= sum;
    const Vector d = Expert(layer, ids[k], x);
    for (size_t i = 0; i < y.size(); ++i) y[i] += weights[k] * d[i];
  }
  const double gate = Sigmoid(Project(layer, "mlp.shared_expert_gate", x)[0]);
  const Vector shared = DenseMlp(layer, "mlp.shared_expert.", x);
  for (size_t i = 0; i < y.size(); ++i) y[i] += gate * shared[i];

  step.router_ids.push_back(ids);
  step.router_logits.push_back(scores);
  step.router_weights.push_back(weights);
  return y;
}

OracleStep Oracle::Step(int32_t token) { return Run(token, nullptr); }

OracleStep Oracle::Step(int32_t token,
                        const std::vector<std::vector<int32_t>>& forced_ids) {
  return Run(token, &forced_ids);
}

OracleStep Oracle::Run(int32_t token,
                       const std::vector<std::vector<int32_t>>* forced_ids) {
  const OracleTensor& embedding = model_.tensors.at("embed_tokens.weight");
  const int64_t row = token * config_.hidden;
  Vector hidden = Slice(embedding.data, row, row + config_.hidden);
  OracleStep step;
  for (int64_t layer = 0; layer < config_.layers(); ++layer) {
    Vector x = hidden;
    CentredNorm(x, 0, Weight(layer, "input_layernorm.weight"));
    AddTo(hidden, config_.is_full_attention[Index(layer)] ? Attention(layer, x)
                                                          : DeltaNet(layer, x));
    x = hidden;
    CentredNorm(x, 0, Weight(layer, "post_attention_layernorm.weight"));
    if (config_.is_moe) {
      AddTo(hidden,
            Moe(layer, x,
                forced_ids != nullptr ? &forced_ids->at(Index(layer)) : nullptr,
                step));
    } else {
      AddTo(hidden, DenseMlp(layer, "mlp.", x));
    }
    step.residual.push_back(hidden);
  }
  CentredNorm(hidden, 0, model_.tensors.at("norm.weight"));
  const OracleTensor& head =
      config_.tied_embeddings ? embedding : model_.tensors.at("lm_head.weight");
  step.logits = Multiply(head, 0, config_.vocabulary, hidden);
  ++position_;
  return step;
}

}  // namespace signet::testing
