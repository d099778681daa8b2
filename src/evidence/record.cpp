#include "evidence/record.h"

#include <span>

#include "base/check.h"

namespace signet::evidence {

std::string_view Name(What what) {
  switch (what) {
    case What::kConv:
      return "conv state";
    case What::kRecurrent:
      return "recurrent state";
    case What::kKeys:
      return "keys";
    case What::kValues:
      return "values";
    case What::kMiddle:
      return "residual after the mixer";
    case What::kRouterScores:
      return "router scores";
    case What::kRouterIds:
      return "router ids";
    case What::kRouterWeights:
      return "router weights";
    case What::kCombine:
      return "combine output";
    case What::kResidual:
      return "residual";
    case What::kLogits:
      return "logits";
    case What::kToken:
      return "token";
  }
  return "";
}

int32_t CallRecord::next_token() const {
  for (const Piece& piece : pieces) {
    if (piece.what == What::kToken) return piece.ids.back();
  }
  SIGNET_CHECK(false);
  return -1;
}

Digest RowDigest(const Piece& piece, int64_t row) {
  const auto width = static_cast<size_t>(piece.width());
  const size_t begin = static_cast<size_t>(row) * width;
  Digester digester;
  if (piece.ids.empty()) {
    digester.Update(
        std::as_bytes(std::span(piece.values).subspan(begin, width)));
  } else {
    digester.Update(std::as_bytes(std::span(piece.ids).subspan(begin, width)));
  }
  return digester.Finish();
}

}  // namespace signet::evidence
