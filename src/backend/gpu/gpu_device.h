#pragma once
// One GPU, driven through a stream of its own. Several may stand for the same
// GPU: memory of one can be read by the kernels of another. Every operation
// makes its GPU the calling thread's.

#include <memory>

#include "backend/device.h"
#include "base/result.h"

namespace signet::backend::gpu {

/// `facts` are those of a GPU that the driver lists. Failure: kDevice, when its
/// context, its stream or the kernels' scratch cannot be had.
Result<std::unique_ptr<Device>> MakeDevice(const DeviceFacts& facts);

}  // namespace signet::backend::gpu
