#include "backend/gpu/attention_decode.cuh"

namespace signet::backend::gpu {

Status LaunchDecode(Stream stream, const SplitAttention& attention) {
  return LaunchDecodeAs<false>(stream, attention);
}

}  // namespace signet::backend::gpu
