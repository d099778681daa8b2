#include "backend/gpu_ceilings.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>

#include "backend/gpu/ceiling_parts.h"
#include "backend/gpu/gpu_timing.h"
#include "backend/gpu/lt_product.h"
#include "backend/gpu/vendor.h"
#include "backend/gpu_devices.h"

namespace signet::backend {
namespace gpu {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kMostReadBytes = 8192 * kMiB;
constexpr uint64_t kHostBytes = 1024 * kMiB;
constexpr int kProductSize = 8192;
constexpr int kMostBlocksAnSm = 2;

// The measurements of one GPU, on a stream of their own.
class Measurer {
 public:
  explicit Measurer(const DeviceFacts& facts) : facts_(facts) {
    Check(cudaSetDevice(facts.ordinal));
    Check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  }
  ~Measurer() {
    Release();
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }
  Measurer(const Measurer&) = delete;
  Measurer& operator=(const Measurer&) = delete;

  Result<GpuCeilings> Run() {
    GpuCeilings ceilings;
    ceilings.read_bytes_per_second = Read();
    Release();
    ceilings.host_to_device_bytes_per_second = CopyFromHost();
    Release();
    if (status_ != kOk) {
      return Fail(FailureKind::kDevice, facts_.identity,
                  fmt::format("cannot measure the GPU: {}",
                              cudaGetErrorString(status_)));
    }
    const std::optional<double> seconds =
        SecondsOfLtProduct(stream_, kProductSize);
    if (seconds && *seconds > 0) {
      constexpr double kSide = kProductSize;
      ceilings.bf16_flops = 2 * kSide * kSide * kSide / *seconds;
    }
    return ceilings;
  }

 private:
  double Read() {
    size_t free = 0;
    size_t total = 0;
    Check(cudaMemGetInfo(&free, &total));
    const uint64_t bytes =
        std::min<uint64_t>(kMostReadBytes, free / 2) / kMiB * kMiB;
    int num_sms = 0;
    Check(cudaDeviceGetAttribute(&num_sms, cudaDevAttrMultiProcessorCount,
                                 facts_.ordinal));
    Check(cudaMalloc(&device_, bytes));
    Check(cudaMalloc(&sink_, sizeof(uint32_t)));
    Check(cudaMemsetAsync(device_, 0x5A, bytes, stream_));
    double best = 0;
    for (int blocks = 1; blocks <= kMostBlocksAnSm; ++blocks) {
      const double seconds = MedianSeconds(stream_, status_, [&] {
        return LaunchRead(stream_, device_, bytes, blocks * num_sms,
                          static_cast<uint32_t*>(sink_));
      });
      if (seconds > 0) {
        best = std::max(best, static_cast<double>(bytes) / seconds);
      }
    }
    return best;
  }

  double CopyFromHost() {
    Check(cudaMalloc(&device_, kHostBytes));
    Check(cudaMallocHost(&host_, kHostBytes));
    const double seconds = MedianSeconds(stream_, status_, [&] {
      return cudaMemcpyAsync(device_, host_, kHostBytes, cudaMemcpyHostToDevice,
                             stream_);
    });
    return seconds > 0 ? static_cast<double>(kHostBytes) / seconds : 0;
  }

  void Release() {
    cudaFree(device_);
    cudaFree(sink_);
    cudaFreeHost(host_);
    device_ = sink_ = host_ = nullptr;
  }

  void Check(Status status) {
    if (status_ == kOk) status_ = status;
    // Not left for the next call to be blamed for.
    if (status != kOk) static_cast<void>(cudaGetLastError());
  }

  const DeviceFacts& facts_;
  Stream stream_ = nullptr;
  void* device_ = nullptr;
  void* sink_ = nullptr;
  void* host_ = nullptr;
  Status status_ = kOk;
};

}  // namespace
}  // namespace gpu

Result<GpuCeilings> MeasureGpuCeilings(std::string_view identity) {
  for (const DeviceFacts& device : GpuDevices()) {
    if (device.identity == identity) return gpu::Measurer(device).Run();
  }
  return Fail(FailureKind::kDevice, std::string(identity),
              "this machine has no such GPU");
}

}  // namespace signet::backend
