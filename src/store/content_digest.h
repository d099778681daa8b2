#pragma once
// What the weights of a model are, as one digest (contract W2): two checkpoints
// of one shape have equal headers, and this tells them apart. It is the digest
// of the digests of pieces, of each weight from its first byte on, in file
// order; what the manifest does not consume is not in it. Reading them is
// content_reader.h. One thread.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/digest.h"
#include "model/manifest.h"

namespace signet::store {

class ContentDigest {
 public:
  static constexpr uint64_t kPieceBytes = uint64_t{1} << 20;
  /// The pieces of a weight; only the last is shorter than kPieceBytes.
  static std::vector<model::FileRange> Pieces(const model::FileRange& weight);

  /// Of one piece. Any thread.
  static Digest OfPiece(std::span<const std::byte> piece);

  /// The digest of the next piece.
  void Add(const Digest& piece) { pieces_.Update(piece.Hex()); }
  Digest Finish() const { return pieces_.Finish(); }

 private:
  Digester pieces_;
};

}  // namespace signet::store
