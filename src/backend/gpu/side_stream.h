#pragma once
// The side lane of a GPU: a second stream, which joins the first one's capture
// by events. One thread drives it, that of the device.

#include <vector>

#include "backend/gpu/gpu_kernels.h"
#include "backend/gpu/vendor.h"
#include "backend/side_lane.h"

namespace signet::backend::gpu {

class SideStream final : public SideLane {
 public:
  /// `main` is the stream of the main lane, and must outlive this.
  SideStream(Stream main, int num_sms);
  ~SideStream() override;
  SideStream(const SideStream&) = delete;
  SideStream& operator=(const SideStream&) = delete;

  Kernels& kernels() override { return kernels_; }
  void Mark(LaunchKey, Lane lane, size_t point) override;
  void Follow(LaunchKey, Lane lane, size_t point) override;

  /// The first failure of this lane, and forgets it; kOk if none.
  Status TakeStatus();

 private:
  Stream of(Lane lane) const { return lane == Lane::kMain ? main_ : side_; }
  void Check(Status status) {
    if (status_ == kOk) status_ = status;
  }
  Stream MakeStream();
  void* MakeScratch();

  Status status_ = kOk;
  Stream main_;
  Stream side_;
  void* scratch_;  // of its own: launches of both lanes may run at once
  GpuKernels kernels_;
  std::vector<Event> points_;  // null until marked
};

}  // namespace signet::backend::gpu
