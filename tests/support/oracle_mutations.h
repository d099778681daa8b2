#pragma once
// Wrong models, made from right ones: a comparison that cannot tell the two
// apart proves nothing. Each function returns a changed copy and leaves every
// shape as it was.
//
// A kind names a tensor without its layer: "linear_attn.A_log" is every
// layer's, "layers.3.linear_attn.A_log" that of one. A kind that matches
// nothing, or a slice outside the tensor, ends the program.

#include <cstdint>
#include <string>

#include "tests/support/oracle_model.h"

namespace signet::testing {

/// Swaps [first, first + length) with [second, second + length) along `axis`;
/// the two may not overlap.
OracleModel SwapSlices(const OracleModel& model, const std::string& kind,
                       int64_t axis, int64_t first, int64_t second,
                       int64_t length);

/// Swaps the contents of two kinds of one shape, layer by layer.
OracleModel SwapKinds(const OracleModel& model, const std::string& kind,
                      const std::string& other_kind);

/// Stores the last two axes transposed under the old shape, as a reader that
/// takes [in, out] for [out, in] would. Square ones are plainly transposed.
OracleModel TransposeKind(const OracleModel& model, const std::string& kind);

OracleModel ZeroKind(const OracleModel& model, const std::string& kind);

}  // namespace signet::testing
