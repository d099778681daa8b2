#include "backend/gpu/gpu_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "backend/gpu/delay.h"
#include "backend/gpu/expert_layout.h"
#include "backend/gpu/gpu_kernels.h"
#include "backend/gpu/mirror.h"
#include "backend/gpu/side_stream.h"
#include "backend/gpu/vendor.h"
#include "backend/gpu/weight_stager.h"
#include "backend/gpu_devices.h"
#include "backend/host_device.h"
#include "base/check.h"

namespace signet::backend::gpu {
namespace {

// The host writes these before a call and reads them after it.
bool HasMirror(MemoryClass memory_class) {
  return memory_class == MemoryClass::kIo ||
         memory_class == MemoryClass::kTables;
}

class GpuReplay final : public Replay {
 public:
  GpuReplay(GraphExec graph, Stream stream, Status* status)
      : graph_(graph), stream_(stream), status_(status) {}
  ~GpuReplay() override { cudaGraphExecDestroy(graph_); }
  void Launch(LaunchKey) override {
    const Status status = cudaGraphLaunch(graph_, stream_);
    if (*status_ == kOk) *status_ = status;
  }

 private:
  GraphExec graph_;
  Stream stream_;
  Status* status_;  // of the device, which outlives its replays
};

class GpuDevice final : public HostDevice {
 public:
  explicit GpuDevice(const DeviceFacts& facts)
      : HostDevice(facts), stager_(facts.ordinal) {}

  Result<void> Start() {
    Check(cudaSetDevice(facts().ordinal));
    // The host waits for one step at a time, and wants to know at once.
    Check(cudaSetDeviceFlags(cudaDeviceScheduleSpin));
    Check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    Check(cudaMalloc(&scratch_, GpuKernels::kScratchBytes));
    int num_sms = 0;
    Check(cudaDeviceGetAttribute(&num_sms, cudaDevAttrMultiProcessorCount,
                                 facts().ordinal));
    SIGNET_RETURN_IF_ERROR(Failure("cannot start the GPU"));
    kernels_ = std::make_unique<GpuKernels>(stream_, num_sms, scratch_);
    side_ = std::make_unique<SideStream>(stream_, num_sms);
    Check(side_->TakeStatus());
    return Failure("cannot start the GPU");
  }

  ~GpuDevice() override {
    cudaSetDevice(facts().ordinal);
    if (stream_ != nullptr) cudaStreamSynchronize(stream_);
    side_.reset();
    cudaFree(scratch_);
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }

  Bytes FreeMemory() const override { return GpuFreeMemory(facts().identity); }

  Result<Memory> Allocate(MemoryClass memory_class, Bytes size,
                          uint64_t alignment) override {
    const auto refuse = [&](Status status) {
      return Fail(FailureKind::kMemory, facts().identity,
                  fmt::format("cannot reserve memory for {}: {} ({})",
                              Name(memory_class), HumanBytes(size),
                              cudaGetErrorString(status)));
    };
    cudaSetDevice(facts().ordinal);
    if (Faulted(FaultPoint::kAllocate))
      return refuse(cudaErrorMemoryAllocation);
    const uint64_t reserved = std::max<uint64_t>(size.value(), 1);
    void* data = nullptr;
    void* host = nullptr;
    Status status = cudaMalloc(&data, reserved);
    if (status == kOk) status = cudaMemsetAsync(data, 0, reserved, stream_);
    if (status == kOk && HasMirror(memory_class)) {
      status = cudaMallocHost(&host, reserved);
      if (status == kOk) std::memset(host, 0, reserved);
    }
    if (status == kOk) status = cudaStreamSynchronize(stream_);
    if (status != kOk) {
      cudaFree(data);
      cudaFreeHost(host);
      // Not left for the next call to be blamed for.
      static_cast<void>(cudaGetLastError());
      return refuse(status);
    }
    SIGNET_CHECK(reinterpret_cast<uintptr_t>(data) % alignment == 0);
    CountAllocation(static_cast<std::byte*>(data), Bytes(reserved),
                    memory_class, size);
    return Memory(this, static_cast<std::byte*>(data),
                  static_cast<std::byte*>(host), size, Bytes(reserved),
                  memory_class);
  }

  Result<void> Copy(LoadKey, const Memory& to, uint64_t offset,
                    const StridedRows& from) override {
    const Bytes size = Bytes(from.rows) * from.row_bytes;
    const bool fits = to.device() == this && !size.overflowed() &&
                      offset <= to.size().value() &&
                      size.value() <= to.size().value() - offset;
    if (!fits || Faulted(FaultPoint::kCopy)) {
      return Fail(FailureKind::kDevice, facts().identity,
                  fmt::format("cannot copy {} to memory for {}",
                              HumanBytes(size), Name(to.memory_class())));
    }
    stager_.Add(from, to.data() + offset);
    return {};
  }

  Result<void> Settle(LoadKey, const CopyProgress& progress) override {
    return stager_.Wait(progress);
  }

  Result<CommittedTable> CommitTable(LoadKey,
                                     std::span<const ExpertPointers> experts,
                                     std::span<const int32_t> global_to_local,
                                     const Memory& memory,
                                     uint64_t offset) override {
    const uint64_t size = experts.size_bytes() + global_to_local.size_bytes();
    SIGNET_CHECK(memory.device() == this &&
                 offset + size <= memory.size().value());
    if (Faulted(FaultPoint::kTable)) {
      return Fail(FailureKind::kDevice, facts().identity,
                  "cannot commit a table of experts");
    }
    cudaSetDevice(facts().ordinal);
    std::byte* const table = memory.data() + offset;
    std::byte* const map = table + experts.size_bytes();
    Check(cudaMemcpy(table, experts.data(), experts.size_bytes(),
                     cudaMemcpyHostToDevice));
    Check(cudaMemcpy(map, global_to_local.data(), global_to_local.size_bytes(),
                     cudaMemcpyHostToDevice));
    SIGNET_RETURN_IF_ERROR(Failure("cannot commit a table of experts"));
    return CommittedTable{reinterpret_cast<const ExpertPointers*>(table),
                          reinterpret_cast<const int32_t*>(map),
                          LayoutOf(experts)};
  }

  void Feed(LaunchKey, std::span<const MirrorPart> parts) override {
    Check(CopyMirrors(stream_, Direction::kToDevice, parts));
  }
  void Fetch(LaunchKey, std::span<const MirrorPart> parts) override {
    Check(CopyMirrors(stream_, Direction::kToHost, parts));
  }

  Result<std::unique_ptr<Replay>> Record(
      LaunchKey, const std::function<void()>& enqueue) override {
    cudaSetDevice(facts().ordinal);
    Check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
    enqueue();
    Graph graph = nullptr;
    Check(cudaStreamEndCapture(stream_, &graph));
    Check(kernels_->TakeStatus());
    Check(side_->TakeStatus());
    GraphExec executable = nullptr;
    if (status_ == kOk) {
      Check(cudaGraphInstantiate(&executable, graph, 0));
      if (status_ == kOk) Check(cudaGraphUpload(executable, stream_));
    }
    if (graph != nullptr) cudaGraphDestroy(graph);
    SIGNET_RETURN_IF_ERROR(Failure("cannot record a program"));
    return std::make_unique<GpuReplay>(executable, stream_, &status_);
  }

  Result<void> Wait(LaunchKey) override {
    Check(kernels_->TakeStatus());
    Check(cudaStreamSynchronize(stream_));
    return Failure("a launch failed");
  }

  Result<std::vector<double>> Time(
      LaunchKey, std::span<const std::function<void()>> launches) override {
    cudaSetDevice(facts().ordinal);
    std::vector<Event> events(launches.size() + 1, nullptr);
    for (Event& event : events) Check(cudaEventCreate(&event));
    // Long enough that the host is ahead of the GPU from here on.
    Check(LaunchDelay(stream_,
                      std::chrono::milliseconds(5) +
                          launches.size() * std::chrono::microseconds(10)));
    Check(cudaEventRecord(events.front(), stream_));
    for (size_t i = 0; i < launches.size(); ++i) {
      launches[i]();
      Check(cudaEventRecord(events[i + 1], stream_));
    }
    Check(kernels_->TakeStatus());
    Check(cudaStreamSynchronize(stream_));
    std::vector<double> seconds;
    for (size_t i = 0; i < launches.size(); ++i) {
      float milliseconds = 0;
      Check(cudaEventElapsedTime(&milliseconds, events[i], events[i + 1]));
      seconds.push_back(double{milliseconds} * 1e-3);
    }
    for (const Event event : events) cudaEventDestroy(event);
    SIGNET_RETURN_IF_ERROR(Failure("cannot time launches"));
    return seconds;
  }
  Result<void> Download(const std::byte* from, Bytes size,
                        std::byte* to) override {
    cudaSetDevice(facts().ordinal);
    Check(cudaStreamSynchronize(stream_));
    Check(cudaMemcpy(to, from, size.value(), cudaMemcpyDeviceToHost));
    return Failure("cannot read the GPU's memory");
  }

  Result<void> Fill(Memory& memory, std::byte value) override {
    cudaSetDevice(facts().ordinal);
    Check(cudaMemset(memory.data(), static_cast<int>(value),
                     memory.size().value()));
    Check(cudaDeviceSynchronize());
    if (memory.host() != nullptr) {
      std::memset(memory.host(), static_cast<int>(value),
                  memory.size().value());
    }
    return Failure("cannot fill the GPU's memory");
  }

  bool HasLaunchFailed() override {
    if (Faulted(FaultPoint::kLaunch)) return true;
    Check(kernels_->TakeStatus());
    return status_ != kOk;
  }

  Kernels& kernels() override { return *kernels_; }
  SideLane* side_lane(int64_t capacity) override {
    return capacity > kFewRows ? side_.get() : nullptr;
  }

 private:
  void Check(Status status) {
    if (status_ == kOk) status_ = status;
  }

  // Errors of a context stay: every later call reports the first.
  Result<void> Failure(const char* what) const {
    if (status_ == kOk) return {};
    return Fail(FailureKind::kDevice, facts().identity,
                fmt::format("{}: {}", what, cudaGetErrorString(status_)));
  }

  void Free(Memory& memory) override {
    if (!TakeBack(memory.device(), memory.data(), memory.reserved())) return;
    cudaSetDevice(facts().ordinal);
    // Copies of a load that is rolled back may still be on their way.
    AwaitCopies();
    cudaFree(memory.data());
    if (memory.host() != nullptr) cudaFreeHost(memory.host());
    CountFree(memory);
  }

  void AwaitCopies() override { static_cast<void>(stager_.Wait({})); }

  WeightStager stager_;
  Stream stream_ = nullptr;
  void* scratch_ = nullptr;
  std::unique_ptr<GpuKernels> kernels_;
  std::unique_ptr<SideStream> side_;
  Status status_ = kOk;
};

}  // namespace

Result<std::unique_ptr<Device>> MakeDevice(const DeviceFacts& facts) {
  auto device = std::make_unique<GpuDevice>(facts);
  SIGNET_RETURN_IF_ERROR(device->Start());
  return device;
}

}  // namespace signet::backend::gpu
