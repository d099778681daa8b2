#include "backend/gpu/weight_stager.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "backend/gpu/vendor.h"

namespace signet::backend::gpu {
namespace {

// Large enough that a read outweighs its call, small enough to overlap.
constexpr uint64_t kPieceBytes = uint64_t{4} << 20;
constexpr unsigned kMaxThreads = 12;

// `size` bytes of the rows, from byte `begin` of their compact form.
Result<void> ReadRows(const StridedRows& rows, uint64_t begin, uint64_t size,
                      std::byte* to) {
  while (size > 0) {
    const uint64_t row = begin / rows.row_bytes;
    const uint64_t column = begin % rows.row_bytes;
    // Rows that touch are one run.
    const bool dense = rows.stride_bytes == rows.row_bytes;
    const uint64_t run = dense ? size : std::min(size, rows.row_bytes - column);
    const uint64_t at = row * rows.stride_bytes + column;
    if (rows.fd < 0) {
      std::memcpy(to, rows.data + at, run);
    } else {
      uint64_t done = 0;
      while (done < run) {
        const ssize_t count =
            pread(rows.fd, to + done, run - done,
                  static_cast<off_t>(rows.file_offset + at + done));
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) {
          return Fail(FailureKind::kIo, "weights",
                      count == 0 ? "a file ends before its weights do"
                                 : std::string(std::strerror(errno)));
        }
        done += static_cast<uint64_t>(count);
      }
    }
    begin += run;
    to += run;
    size -= run;
  }
  return {};
}

}  // namespace

// Two pinned buffers: one is read into while the other is copied.
class WeightStager::Worker {
 public:
  explicit Worker(int ordinal) {
    Check(cudaSetDevice(ordinal));
    Check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    for (Buffer& buffer : buffers_) {
      Check(
          cudaMallocHost(reinterpret_cast<void**>(&buffer.data), kPieceBytes));
      Check(cudaEventCreateWithFlags(&buffer.copied, cudaEventDisableTiming));
    }
  }
  ~Worker() {
    if (stream_ != nullptr) cudaStreamSynchronize(stream_);
    for (Buffer& buffer : buffers_) {
      if (buffer.copied != nullptr) cudaEventDestroy(buffer.copied);
      if (buffer.data != nullptr) cudaFreeHost(buffer.data);
    }
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  Result<void> Bring(const Piece& piece) {
    SIGNET_RETURN_IF_ERROR(Failure());
    const uint64_t total = piece.from.rows * piece.from.row_bytes;
    for (uint64_t begin = 0; begin < total; begin += kPieceBytes) {
      const uint64_t size = std::min(kPieceBytes, total - begin);
      Buffer& buffer = buffers_[next_];
      next_ = (next_ + 1) % buffers_.size();
      Check(cudaEventSynchronize(buffer.copied));
      SIGNET_RETURN_IF_ERROR(ReadRows(piece.from, begin, size, buffer.data));
      Check(cudaMemcpyAsync(piece.to + begin, buffer.data, size,
                            cudaMemcpyHostToDevice, stream_));
      Check(cudaEventRecord(buffer.copied, stream_));
      SIGNET_RETURN_IF_ERROR(Failure());
    }
    return {};
  }

  /// All that was brought is in place.
  Result<void> Finish() {
    if (stream_ != nullptr) Check(cudaStreamSynchronize(stream_));
    return Failure();
  }

 private:
  struct Buffer {
    std::byte* data = nullptr;
    Event copied = nullptr;
  };
  void Check(Status status) {
    if (status_ == kOk) status_ = status;
  }
  Result<void> Failure() const {
    if (status_ == kOk) return {};
    return Fail(FailureKind::kDevice, "weights",
                fmt::format("cannot copy weights to the GPU: {}",
                            cudaGetErrorString(status_)));
  }
  Status status_ = kOk;
  Stream stream_ = nullptr;
  std::array<Buffer, 2> buffers_;
  size_t next_ = 0;
};

WeightStager::~WeightStager() { Stop(); }

void WeightStager::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    open_ -= static_cast<int64_t>(pieces_.size());
    pieces_.clear();
  }
  queued_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void WeightStager::Add(const StridedRows& from, std::byte* to) {
  {
    const std::lock_guard lock(mutex_);
    pieces_.push_back({from, to});
    ++open_;
  }
  const unsigned threads =
      std::clamp(std::thread::hardware_concurrency(), 1u, kMaxThreads);
  if (threads_.size() < threads) threads_.emplace_back([this] { Work(); });
  queued_.notify_one();
}

void WeightStager::Work() {
  Worker worker(ordinal_);
  std::unique_lock lock(mutex_);
  int64_t brought = 0;
  while (true) {
    if (pieces_.empty() && brought > 0) {
      // Nothing to overlap with: settle what this worker brought.
      lock.unlock();
      Result<void> result = worker.Finish();
      lock.lock();
      if (!result && !error_) error_ = std::move(result).error();
      open_ -= std::exchange(brought, 0);
      finished_.notify_all();
      continue;
    }
    queued_.wait(lock, [this] { return stop_ || !pieces_.empty(); });
    if (stop_) break;
    const Piece piece = pieces_.front();
    pieces_.pop_front();
    const bool skip = error_.has_value();
    lock.unlock();
    Result<void> result = skip ? Result<void>() : worker.Bring(piece);
    lock.lock();
    ++brought;
    if (!result && !error_) error_ = std::move(result).error();
    done_bytes_ += piece.from.rows * piece.from.row_bytes;
    finished_.notify_all();
  }
}

Result<void> WeightStager::Wait(const CopyProgress& progress) {
  std::unique_lock lock(mutex_);
  while (open_ > 0) {
    finished_.wait_for(lock, std::chrono::milliseconds(100));
    if (!progress) continue;
    const Bytes done(done_bytes_);
    lock.unlock();
    progress(done);
    lock.lock();
  }
  done_bytes_ = 0;
  std::optional<Error> error = std::exchange(error_, std::nullopt);
  lock.unlock();
  Stop();
  lock.lock();
  stop_ = false;
  if (error) return tl::unexpected<Error>(*std::move(error));
  return {};
}

}  // namespace signet::backend::gpu
