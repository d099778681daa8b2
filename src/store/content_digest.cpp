#include "store/content_digest.h"

#include <algorithm>
#include <string_view>

#include "model/checkpoint.h"
#include "store/weight_ranges.h"

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

void ContentDigest::Add(std::span<const std::byte> piece) {
  const std::string_view bytes(reinterpret_cast<const char*>(piece.data()),
                               piece.size());
  pieces_.Update(Digest::Of(bytes).Hex());
}

Result<Digest> ContentOf(const model::Manifest& manifest) {
  const model::Checkpoint& checkpoint = manifest.checkpoint();
  ContentDigest content;
  std::vector<std::byte> bytes(ContentDigest::kPieceBytes);
  for (const WeightRange& weights : WeightRanges(manifest)) {
    const model::OpenedFile& file =
        checkpoint.weight_files()[weights.file_range.file];
    for (const FileRange& piece : ContentDigest::Pieces(weights.file_range)) {
      SIGNET_RETURN_IF_ERROR(
          file.ReadAt(piece.begin_bytes, bytes.data(), piece.size_bytes()));
      content.Add(std::span(bytes).first(piece.size_bytes()));
    }
  }
  return content.Finish();
}

}  // namespace signet::store
