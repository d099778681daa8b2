#include "model/synth_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <exception>
#include <mutex>
#include <new>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

namespace signet::model {
namespace {

constexpr uint64_t kChunkElements = 1 << 20;

/// A new file. Owns its descriptor.
class NewFile {
 public:
  static Result<NewFile> Create(const std::filesystem::path& path) {
    NewFile file;
    file.path_ = path.string();
    file.descriptor_ =
        ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file.descriptor_ < 0) return file.Failed("the file cannot be made");
    return file;
  }
  NewFile(NewFile&& other) noexcept
      : descriptor_(std::exchange(other.descriptor_, -1)),
        path_(std::move(other.path_)) {}
  NewFile& operator=(NewFile&&) = delete;
  ~NewFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }

  Result<void> WriteAt(uint64_t offset, const void* data, uint64_t size) const {
    const char* next = static_cast<const char*>(data);
    while (size > 0) {
      const ssize_t put =
          ::pwrite(descriptor_, next, size, static_cast<off_t>(offset));
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) return Failed("writing failed");
      next += put;
      offset += static_cast<uint64_t>(put);
      size -= static_cast<uint64_t>(put);
    }
    return {};
  }

  /// Up to `size` bytes; those not written are a hole.
  Result<void> Extend(uint64_t size) const {
    if (::ftruncate(descriptor_, static_cast<off_t>(size)) == 0) return {};
    return Failed("the file cannot be made as long");
  }

 private:
  NewFile() = default;
  tl::unexpected<Error> Failed(std::string_view what) const {
    return Fail(
        FailureKind::kIo, path_,
        fmt::format("{}: {}", what, std::generic_category().message(errno)));
  }
  int descriptor_ = -1;
  std::string path_;
};

/// At most kChunkElements of one tensor.
struct Chunk {
  const NewFile* file;
  const SynthTensor* tensor;
  uint64_t offset_bytes;  // of the file
  uint64_t first;         // of the tensor
  uint64_t count;
};

class ChunkWriter {
 public:
  ChunkWriter(const std::vector<Chunk>& chunks, uint64_t seed,
              const std::atomic<bool>* stop)
      : chunks_(chunks), seed_(seed), stop_(stop) {}

  /// Runs in every thread until no chunk is left or one has failed.
  void Run() {
    try {
      WriteChunks();
    } catch (const std::bad_alloc&) {
      Keep(Failure{FailureKind::kMemory, "synth", "out of memory"});
    }
  }

  /// After all threads have ended.
  Result<void> Outcome() {
    if (error_) return tl::unexpected<Error>(*std::move(error_));
    return {};
  }

 private:
  void WriteChunks() {
    std::vector<uint16_t> values;
    while (!has_failed_.load(std::memory_order_relaxed)) {
      const size_t i = next_.fetch_add(1, std::memory_order_relaxed);
      if (i >= chunks_.size()) return;
      if (stop_ != nullptr && stop_->load(std::memory_order_relaxed)) {
        Keep(Failure{FailureKind::kAborted, "synth", "interrupted"});
        return;
      }
      const Chunk& chunk = chunks_[i];
      values.resize(chunk.count);
      FillBf16(ValueStream(seed_, chunk.tensor->stream_name),
               chunk.tensor->recipe, chunk.tensor->first_index + chunk.first,
               values);
      Result<void> written = chunk.file->WriteAt(
          chunk.offset_bytes, values.data(), 2 * chunk.count);
      if (!written.has_value()) Keep(std::move(written).error());
    }
  }

  // The first error ends all threads.
  void Keep(Error error) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::move(error);
    has_failed_ = true;
  }

  const std::vector<Chunk>& chunks_;
  uint64_t seed_;
  const std::atomic<bool>* stop_;
  std::atomic<size_t> next_ = 0;
  std::atomic<bool> has_failed_ = false;
  std::mutex mutex_;
  std::optional<Error> error_;
};

}  // namespace

Result<void> WriteShards(const std::filesystem::path& folder,
                         const std::vector<SynthShard>& shards, SynthData data,
                         uint64_t seed, int num_threads,
                         const std::atomic<bool>* stop) {
  std::vector<NewFile> files;
  files.reserve(shards.size());  // chunks point at them
  std::vector<Chunk> chunks;
  for (const SynthShard& shard : shards) {
    SIGNET_ASSIGN_OR_RETURN(NewFile file,
                            NewFile::Create(folder / shard.file_name));
    SIGNET_RETURN_IF_ERROR(
        file.WriteAt(0, shard.head.data(), shard.head.size()));
    files.push_back(std::move(file));
    uint64_t offset_bytes = shard.head.size();
    if (data == SynthData::kHoles) {
      for (const SynthTensor& tensor : shard.tensors) {
        offset_bytes += tensor.size_bytes();
      }
      SIGNET_RETURN_IF_ERROR(files.back().Extend(offset_bytes));
      continue;
    }
    for (const SynthTensor& tensor : shard.tensors) {
      const uint64_t num_elements = tensor.num_elements();
      for (uint64_t first = 0; first < num_elements; first += kChunkElements) {
        const uint64_t count = std::min(kChunkElements, num_elements - first);
        chunks.push_back(
            {&files.back(), &tensor, offset_bytes + 2 * first, first, count});
      }
      offset_bytes += tensor.size_bytes();
    }
  }
  ChunkWriter writer(chunks, seed, stop);
  {
    std::vector<std::jthread> threads;
    threads.reserve(static_cast<size_t>(num_threads));
    try {
      for (int i = 1; i < num_threads; ++i) {
        threads.emplace_back([&writer] { writer.Run(); });
      }
    } catch (const std::exception&) {
      // As many as the system gives: any number writes the same bytes.
    }
    writer.Run();
  }
  return writer.Outcome();
}

}  // namespace signet::model
