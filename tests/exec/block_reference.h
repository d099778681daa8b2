#pragma once
// A routed block by its definition, in fp64, and the inputs of a call.

#include <cstdint>
#include <vector>

#include "exec/executor.h"
#include "support/oracle_model.h"

namespace signet::testing {

/// Owns what exec::BlockInputs points to.
struct BlockCall {
  int64_t live = 0;
  std::vector<float> x;        // [live, H]
  std::vector<int32_t> ids;    // [live, K]; empty with a softmax router
  std::vector<float> weights;  // [live, K]; empty with a softmax router
  exec::BlockInputs inputs() const { return {x, ids, weights, live}; }
};

/// Rows of normal numbers; no routes.
BlockCall BlockRows(int64_t live, int64_t hidden, uint64_t seed);

/// With `top_k` distinct experts a row, and weights that sum to 1.
BlockCall RoutedRows(int64_t live, int64_t hidden, int64_t experts,
                     int64_t top_k, uint64_t seed);

/// y[t] = sum_k w_k Wd_e (silu(Wg_e x) * Wu_e x), [live, H], of layer 0.
std::vector<double> NaiveBlock(const OracleModel& model, const BlockCall& call);

/// Fills in the routes the layer's softmax router would choose, in fp64.
void RouteNaively(const OracleModel& model, BlockCall* call);

/// max over rows of |got - want|_2 / |want|_2.
double WorstRow(const std::vector<float>& got, const std::vector<double>& want,
                int64_t hidden);

}  // namespace signet::testing
