#include "tests/support/oracle_mutations.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

namespace signet::testing {
namespace {

void Require(bool condition, const std::string& kind, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "mutation of %s: %s\n", kind.c_str(), what);
  std::abort();
}

// The names of all tensors of the kind, in order; at least one.
std::vector<std::string> NamesOf(const OracleModel& model,
                                 const std::string& kind) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : model.tensors) {
    if (name == kind || name.ends_with("." + kind)) names.push_back(name);
  }
  Require(!names.empty(), kind, "no such tensor");
  return names;
}

int64_t Product(std::vector<int64_t>::const_iterator begin,
                std::vector<int64_t>::const_iterator end) {
  int64_t product = 1;
  for (auto dim = begin; dim != end; ++dim) product *= *dim;
  return product;
}

}  // namespace

OracleModel SwapSlices(const OracleModel& model, const std::string& kind,
                       int64_t axis, int64_t first, int64_t second,
                       int64_t length) {
  OracleModel changed = model;
  for (const std::string& name : NamesOf(model, kind)) {
    OracleTensor& tensor = changed.tensors[name];
    Require(axis >= 0 && axis < static_cast<int64_t>(tensor.shape.size()), kind,
            "no such axis");
    const auto at = tensor.shape.begin() + axis;
    const int64_t low = std::min(first, second);
    const int64_t high = std::max(first, second);
    Require(low >= 0 && low + length <= high && high + length <= *at, kind,
            "slices overlap or lie outside");
    const int64_t outer = Product(tensor.shape.begin(), at);
    const int64_t inner = Product(at + 1, tensor.shape.end());
    for (int64_t o = 0; o < outer; ++o) {
      const auto start = tensor.data.begin() + o * *at * inner;
      std::swap_ranges(start + first * inner, start + (first + length) * inner,
                       start + second * inner);
    }
  }
  return changed;
}

OracleModel SwapKinds(const OracleModel& model, const std::string& kind,
                      const std::string& other_kind) {
  OracleModel changed = model;
  for (const std::string& name : NamesOf(model, kind)) {
    const std::string other =
        name.substr(0, name.size() - kind.size()) + other_kind;
    const auto found = changed.tensors.find(other);
    Require(found != changed.tensors.end(), other, "no such tensor");
    OracleTensor& tensor = changed.tensors[name];
    Require(tensor.shape == found->second.shape, kind, "shapes differ");
    std::swap(tensor.data, found->second.data);
  }
  return changed;
}

OracleModel TransposeKind(const OracleModel& model, const std::string& kind) {
  OracleModel changed = model;
  for (const std::string& name : NamesOf(model, kind)) {
    const OracleTensor& tensor = model.tensors.at(name);
    Require(tensor.shape.size() >= 2, kind, "fewer than two axes");
    const int64_t rows = tensor.shape[tensor.shape.size() - 2];
    const int64_t columns = tensor.shape.back();
    const auto matrices = Product(tensor.shape.begin(), tensor.shape.end() - 2);
    auto to = changed.tensors[name].data.begin();
    for (int64_t m = 0; m < matrices; ++m) {
      const auto from = tensor.data.begin() + m * rows * columns;
      for (int64_t c = 0; c < columns; ++c) {
        for (int64_t r = 0; r < rows; ++r) *to++ = from[r * columns + c];
      }
    }
  }
  return changed;
}

OracleModel ZeroKind(const OracleModel& model, const std::string& kind) {
  OracleModel changed = model;
  for (const std::string& name : NamesOf(model, kind)) {
    std::vector<double>& data = changed.tensors[name].data;
    std::fill(data.begin(), data.end(), 0.0);
  }
  return changed;
}

}  // namespace signet::testing
