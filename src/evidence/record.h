#pragma once
// What one side of a comparison has seen of one call: tokens, logits, state
// and, with taps, what every layer computed. Plain values in an order that
// depends on the model alone, never on pages, shards or ranks, so that any two
// sides can be laid beside each other.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/digest.h"
#include "base/id.h"

namespace signet::evidence {

/// In the order in which a layer computes them.
enum class What {
  kConv,           // conv state after the call's last row
  kRecurrent,      // recurrent state after the call's last row
  kKeys,           // rows appended to the KV cache
  kValues,         //
  kMiddle,         // residual after the mixer
  kRouterScores,   //
  kRouterIds,      //
  kRouterWeights,  //
  kCombine,        // routed experts after their reduction
  kResidual,       // residual after the feed-forward part
  kLogits,         //
  kToken,          // drawn, greedy
};
std::string_view Name(What what);

/// A piece of a model-wide kind is of no layer and comes after all of them.
inline constexpr int32_t kNoLayer = INT32_MAX;

/// One thing of one layer at consecutive positions: `rows` rows of equal
/// width, either numbers or ids.
struct Piece {
  What what;
  int32_t layer = kNoLayer;
  int64_t position = 0;  // of the first row
  int64_t rows = 0;
  std::vector<float> values;  // [rows, width]
  std::vector<int32_t> ids;   // [rows, width], of kRouterIds and kToken

  int64_t width() const {
    return static_cast<int64_t>(values.size() + ids.size()) / rows;
  }
};

/// What a side finds wrong with itself: ranks that should agree and do not, a
/// slot computed twice or not at all, a collective not met.
struct SelfFault {
  std::string what;
  int32_t layer = kNoLayer;
  int64_t position = 0;
  std::string message;
};

struct CallRecord {
  int64_t position = 0;  // of the first row fed
  int64_t rows = 0;      // fed
  std::vector<Piece> pieces;
  std::vector<SelfFault> faults;
  int64_t collectives = 0;          // rows of the schedule
  std::vector<int64_t> rank_slots;  // expert slots each rank computed

  int64_t last_position() const { return position + rows - 1; }
  /// The token drawn after the last row.
  int32_t next_token() const;
};

/// Digest of the row of a piece, values or ids.
Digest RowDigest(const Piece& piece, int64_t row);

}  // namespace signet::evidence
