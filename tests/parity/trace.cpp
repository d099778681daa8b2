#include "parity/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <utility>

#include "support/oracle.h"

namespace signet::testing {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// The values that one relative error is taken over, as groups of an array
/// [outer, groups, inner].
struct Grouping {
  size_t outer;
  size_t groups;
  size_t inner;
};

Grouping GroupingOf(std::string_view kind, const OracleTensor& tensor) {
  const auto dim = [&](size_t i) {
    return static_cast<size_t>(tensor.shape[i]);
  };
  const size_t size = tensor.data.size();
  if (kind == "logits" || kind == "conv") return {1, 1, size};
  if (kind == "residual") return {1, dim(0), dim(1)};
  if (kind == "recurrent") return {1, dim(0), size / dim(0)};
  if (kind == "k" || kind == "v") return {dim(0), dim(1), dim(2)};
  std::fprintf(stderr, "no measure for %s\n", std::string(kind).c_str());
  std::abort();
}

/// Of one group: the differences and the values they are set against.
struct Sums {
  double difference_max = 0;
  double difference_squared = 0;
  double want_max = 0;
  double want_squared = 0;
};

double Measure(std::string_view kind, const Sums& sums) {
  if (kind == "logits") return sums.difference_max;
  const bool is_norm = kind == "residual";
  const double difference =
      is_norm ? std::sqrt(sums.difference_squared) : sums.difference_max;
  const double want = is_norm ? std::sqrt(sums.want_squared) : sums.want_max;
  if (difference == 0) return 0;
  return difference / want;
}

}  // namespace

std::string_view KindOf(std::string_view name) {
  return name.substr(0, name.find('.'));
}

int LayerOf(std::string_view name) {
  const size_t dot = name.find('.');
  if (dot == std::string_view::npos) return -1;
  return std::atoi(std::string(name.substr(dot + 1)).c_str());
}

double ErrorOf(std::string_view name, const OracleTensor& got,
               const OracleTensor& want) {
  if (got.shape != want.shape) return kInfinity;
  if (want.data.empty()) return 0;
  const std::string_view kind = KindOf(name);
  const Grouping grouping = GroupingOf(kind, want);
  std::vector<Sums> sums(grouping.groups);
  size_t i = 0;
  for (size_t o = 0; o < grouping.outer; ++o) {
    for (Sums& group : sums) {
      for (size_t n = 0; n < grouping.inner; ++n, ++i) {
        const double difference = std::abs(got.data[i] - want.data[i]);
        if (!std::isfinite(difference)) return kInfinity;
        group.difference_max = std::max(group.difference_max, difference);
        group.difference_squared += difference * difference;
        group.want_max = std::max(group.want_max, std::abs(want.data[i]));
        group.want_squared += want.data[i] * want.data[i];
      }
    }
  }
  double worst = 0;
  for (const Sums& group : sums) worst = std::max(worst, Measure(kind, group));
  return worst;
}

OracleTensor SelectRows(const OracleTensor& tensor,
                        const std::vector<int32_t>& rows) {
  OracleTensor selected = {tensor.shape, {}};
  selected.shape[0] = static_cast<int64_t>(rows.size());
  const auto width =
      static_cast<std::ptrdiff_t>(tensor.data.size()) / tensor.shape[0];
  for (const int32_t row : rows) {
    const auto begin = tensor.data.begin() + row * width;
    selected.data.insert(selected.data.end(), begin, begin + width);
  }
  return selected;
}

Trace TraceOfOracle(const OracleModel& model, const std::vector<int32_t>& fed,
                    const Routes* routes) {
  const OracleConfig& config = model.config;
  const auto layers = static_cast<size_t>(config.layers());
  const auto positions = static_cast<int64_t>(fed.size());
  Oracle oracle(model);
  Trace trace;
  if (config.is_moe) trace.routes.resize(layers);
  const auto append = [&](const std::string& name,
                          const std::vector<double>& row) {
    OracleTensor& tensor = trace.tensors[name];
    tensor.shape = {positions, static_cast<int64_t>(row.size())};
    tensor.data.insert(tensor.data.end(), row.begin(), row.end());
  };
  for (size_t p = 0; p < fed.size(); ++p) {
    OracleStep step;
    if (routes != nullptr && config.is_moe) {
      std::vector<std::vector<int32_t>> forced;
      for (const auto& layer : *routes) forced.push_back(layer[p]);
      step = oracle.Step(fed[p], forced);
    } else {
      step = oracle.Step(fed[p]);
    }
    append("logits", step.logits);
    for (size_t i = 0; i < layers; ++i) {
      append(fmt::format("residual.{}", i), step.residual[i]);
      if (config.is_moe) trace.routes[i].push_back(step.router_ids[i]);
    }
  }
  for (int64_t i = 0; i < config.layers(); ++i) {
    const std::string suffix = fmt::format(".{}", i);
    if (config.is_full_attention[static_cast<size_t>(i)]) {
      const std::vector<int64_t> shape = {positions, config.kv_heads,
                                          config.head_dim};
      trace.tensors["k" + suffix] = {shape, oracle.Keys(i)};
      trace.tensors["v" + suffix] = {shape, oracle.Values(i)};
    } else {
      const std::vector<double>& conv = oracle.Conv(i);
      const int64_t columns = config.conv_width - 1;
      trace.tensors["conv" + suffix] = {
          {static_cast<int64_t>(conv.size()) / columns, columns}, conv};
      trace.tensors["recurrent" + suffix] = {
          {config.linear_value_heads, config.linear_key_dim,
           config.linear_value_dim},
          oracle.Recurrent(i)};
    }
  }
  return trace;
}

}  // namespace signet::testing
