#pragma once
// What a run of a model over known tokens leaves behind, in one form for the
// engine, the oracle and the goldens, so that one comparison serves any two.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "support/oracle_model.h"

namespace signet::testing {

/// [layer][position][k]: the experts of each token, best first.
using Routes = std::vector<std::vector<std::vector<int32_t>>>;

struct Trace {
  /// As in a golden file: `logits` [P, V], `residual.L` [P, H], `recurrent.L`,
  /// `conv.L`, `k.L`, `v.L`.
  std::map<std::string, OracleTensor> tensors;
  Routes routes;  // empty for dense models
};

/// `residual` of `residual.3`.
std::string_view KindOf(std::string_view name);

/// The number after the first dot of `residual.3`; -1 without a dot.
int LayerOf(std::string_view name);

/// The difference of two tensors of one name in the measure of its kind:
///   logits              max |difference|
///   residual            max over positions of |difference|_2 / |want|_2
///   recurrent, k, v     max over heads of max |difference| / max |want|
///   conv                max |difference| / max |want|
/// Infinite when the shapes differ or a value is not a number.
double ErrorOf(std::string_view name, const OracleTensor& got,
               const OracleTensor& want);

/// Rows of the first dimension, in the order given.
OracleTensor SelectRows(const OracleTensor& tensor,
                        const std::vector<int32_t>& rows);

/// The oracle over `fed`, with the experts of `routes` unless it is null: then
/// it chooses its own.
Trace TraceOfOracle(const OracleModel& model, const std::vector<int32_t>& fed,
                    const Routes* routes);

}  // namespace signet::testing
