#include "backend/gpu_ceilings.h"

#include <string>

namespace signet::backend {

Result<GpuCeilings> MeasureGpuCeilings(std::string_view identity) {
  return Fail(FailureKind::kDevice, std::string(identity),
              "this build has no GPU backend");
}

}  // namespace signet::backend
