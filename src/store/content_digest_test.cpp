#include "store/content_digest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace signet::store {
namespace {

constexpr uint64_t kPiece = ContentDigest::kPieceBytes;

TEST(ContentDigest, PiecesTileAWeight) {
  for (const uint64_t size :
       {uint64_t{2}, kPiece - 2, kPiece, kPiece + 2, 3 * kPiece}) {
    SCOPED_TRACE(size);
    constexpr uint64_t kBegin = 1234;
    const std::vector<model::FileRange> pieces =
        ContentDigest::Pieces({FileId(3), kBegin, kBegin + size});
    uint64_t at = kBegin;
    for (const model::FileRange& piece : pieces) {
      EXPECT_EQ(piece.file, FileId(3));
      EXPECT_EQ(piece.begin_bytes, at);
      at = piece.end_bytes;
      EXPECT_EQ(piece.size_bytes(),
                at == kBegin + size ? (size - 1) % kPiece + 1 : kPiece);
    }
    EXPECT_EQ(at, kBegin + size);
  }
  EXPECT_TRUE(ContentDigest::Pieces({FileId(0), 8, 8}).empty());
}

Digest Of(const std::vector<std::string>& pieces) {
  ContentDigest digest;
  for (const std::string& piece : pieces) {
    digest.Add(ContentDigest::OfPiece(std::as_bytes(std::span(piece))));
  }
  return digest.Finish();
}

TEST(ContentDigest, TellsContentOrderAndPiecesApart) {
  const Digest digest = Of({"one", "two"});
  EXPECT_EQ(digest, Of({"one", "two"}));
  EXPECT_NE(digest, Of({"two", "one"}));
  EXPECT_NE(digest, Of({"onetwo"}));
  EXPECT_NE(digest, Of({"one", "twp"}));
}

}  // namespace
}  // namespace signet::store
