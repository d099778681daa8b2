#pragma once
// Reads the weights of a model for their digest, on threads of its own beside
// whatever else a load does: they are bytes of the files, wherever the load
// puts them. Driven by one thread.

#include <atomic>
#include <cstddef>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/digest.h"
#include "base/result.h"
#include "model/manifest.h"

namespace signet::store {

/// How many threads read on a machine of so many processors: enough to keep up
/// with the copies to a GPU, few enough to leave them theirs. At least 1.
int ContentThreads(int processors);

class ContentReader {
 public:
  /// Begins to read all that the manifest consumes, on the ContentThreads of
  /// the processors this process may use. `manifest` must outlive the reader.
  explicit ContentReader(const model::Manifest& manifest);
  /// On this many threads, or as many of them as the system gives: the digest
  /// is the same with any number, with none too.
  ContentReader(const model::Manifest& manifest, int num_threads);
  /// Ends the threads, whatever is left to read.
  ~ContentReader();
  ContentReader(const ContentReader&) = delete;
  ContentReader& operator=(const ContentReader&) = delete;

  /// Reads what is left along with the threads, and ends them. Once. Failure:
  /// kIo, kChangedFile, kMemory; a failed read stops all threads.
  Result<Digest> Finish();

 private:
  void Work();
  Result<void> ReadPieces();
  void Keep(Error error);

  const model::Manifest& manifest_;
  std::vector<model::FileRange> pieces_;  // in file order
  std::vector<Digest> digests_;           // [piece], each written by one thread
  std::atomic<size_t> next_ = 0;
  std::atomic<bool> stop_ = false;
  std::mutex mutex_;
  std::optional<Error> error_;         // the first; guarded by mutex_
  std::vector<std::jthread> threads_;  // last: joined before the rest goes
};

/// Reads all that the manifest consumes, as fast as it can. kIo, kChangedFile,
/// kMemory.
Result<Digest> ContentOf(const model::Manifest& manifest);

}  // namespace signet::store
