#include "backend/gpu/side_stream.h"

#include <algorithm>

namespace signet::backend::gpu {

Stream SideStream::MakeStream() {
  Stream stream = nullptr;
  Check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return stream;
}

void* SideStream::MakeScratch() {
  void* scratch = nullptr;
  Check(cudaMalloc(&scratch, GpuKernels::kScratchBytes));
  return scratch;
}

SideStream::SideStream(Stream main, int num_sms)
    : main_(main),
      side_(MakeStream()),
      scratch_(MakeScratch()),
      kernels_(side_, num_sms, scratch_) {}

SideStream::~SideStream() {
  for (const Event event : points_) {
    if (event != nullptr) cudaEventDestroy(event);
  }
  cudaFree(scratch_);
  if (side_ != nullptr) cudaStreamDestroy(side_);
}

void SideStream::Mark(LaunchKey, Lane lane, size_t point) {
  points_.resize(std::max(points_.size(), point + 1), nullptr);
  Event& event = points_[point];
  if (event == nullptr) {
    Check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  }
  Check(cudaEventRecord(event, of(lane)));
}

void SideStream::Follow(LaunchKey, Lane lane, size_t point) {
  Check(cudaStreamWaitEvent(of(lane), points_[point], 0));
}

Status SideStream::TakeStatus() {
  if (status_ == kOk) return kernels_.TakeStatus();
  const Status status = status_;
  status_ = kOk;
  return status;
}

}  // namespace signet::backend::gpu
