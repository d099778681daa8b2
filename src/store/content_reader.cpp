#include "store/content_reader.h"

#include <algorithm>
#include <exception>
#include <new>
#include <span>
#include <utility>

#include "backend/cpu/processors.h"
#include "model/checkpoint.h"
#include "store/content_digest.h"
#include "store/weight_ranges.h"

namespace signet::store {

using model::FileRange;

int ContentThreads(int processors) {
  constexpr int kMaxThreads = 12;
  return std::clamp(processors * 3 / 4, 1, kMaxThreads);
}

ContentReader::ContentReader(const model::Manifest& manifest)
    : ContentReader(manifest,
                    ContentThreads(backend::cpu::UsableProcessors())) {}

ContentReader::ContentReader(const model::Manifest& manifest, int num_threads)
    : manifest_(manifest) {
  for (const WeightRange& weights : WeightRanges(manifest)) {
    for (const FileRange& piece : ContentDigest::Pieces(weights.file_range)) {
      pieces_.push_back(piece);
    }
  }
  digests_.resize(pieces_.size());
  threads_.reserve(static_cast<size_t>(num_threads));
  try {
    for (int i = 0; i < num_threads; ++i) {
      threads_.emplace_back([this] { Work(); });
    }
  } catch (const std::exception&) {
    // As many as the system gives: Finish reads what is left.
  }
}

ContentReader::~ContentReader() {
  stop_.store(true, std::memory_order_relaxed);
}

Result<Digest> ContentReader::Finish() {
  Work();
  threads_.clear();
  if (error_) return tl::unexpected<Error>(*std::move(error_));
  ContentDigest content;
  for (const Digest& piece : digests_) content.Add(piece);
  return content.Finish();
}

void ContentReader::Work() {
  try {
    if (Result<void> read = ReadPieces(); !read) {
      Keep(std::move(read).error());
    }
  } catch (const std::bad_alloc&) {
    // Takes no memory: both texts fit into the strings themselves.
    Keep(Failure{FailureKind::kMemory, "weights", "out of memory"});
  }
}

Result<void> ContentReader::ReadPieces() {
  const auto& files = manifest_.checkpoint().weight_files();
  std::vector<std::byte> buffer(ContentDigest::kPieceBytes);
  while (!stop_.load(std::memory_order_relaxed)) {
    const size_t i = next_.fetch_add(1, std::memory_order_relaxed);
    if (i >= pieces_.size()) break;
    const FileRange& piece = pieces_[i];
    const std::span bytes = std::span(buffer).first(piece.size_bytes());
    SIGNET_RETURN_IF_ERROR(files[piece.file].ReadAt(
        piece.begin_bytes, bytes.data(), bytes.size()));
    digests_[i] = ContentDigest::OfPiece(bytes);
  }
  return {};
}

void ContentReader::Keep(Error error) {
  stop_.store(true, std::memory_order_relaxed);
  const std::lock_guard lock(mutex_);
  if (!error_) error_ = std::move(error);
}

Result<Digest> ContentOf(const model::Manifest& manifest) {
  return ContentReader(manifest).Finish();
}

}  // namespace signet::store
