#pragma once
// What a GPU can do at best, measured with kernels that do nothing else: what
// shares in reports are of. A build without a GPU toolchain links the one in
// null/, which measures nothing.

#include <string_view>

#include "base/result.h"

namespace signet::backend {

/// 0 where it could not be measured: products need the vendor's library.
struct GpuCeilings {
  double read_bytes_per_second = 0;
  double bf16_flops = 0;                       // a second
  double host_to_device_bytes_per_second = 0;  // from pinned memory
};

/// Takes up to 8 GiB of the GPU of this identity for a moment. Failure:
/// kDevice.
Result<GpuCeilings> MeasureGpuCeilings(std::string_view identity);

}  // namespace signet::backend
