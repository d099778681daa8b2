#include "store/content_digest.h"

#include <algorithm>
#include <string_view>

namespace signet::store {

using model::FileRange;

std::vector<FileRange> ContentDigest::Pieces(const FileRange& weight) {
  std::vector<FileRange> pieces;
  for (uint64_t begin = weight.begin_bytes; begin < weight.end_bytes;
       begin += kPieceBytes) {
    pieces.push_back(
        {weight.file, begin, std::min(begin + kPieceBytes, weight.end_bytes)});
  }
  return pieces;
}

Digest ContentDigest::OfPiece(std::span<const std::byte> piece) {
  return Digest::Of(std::string_view(
      reinterpret_cast<const char*>(piece.data()), piece.size()));
}

}  // namespace signet::store
