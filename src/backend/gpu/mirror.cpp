#include "backend/gpu/mirror.h"

#include "backend/gpu/mirror_parts.h"
#include "base/check.h"

namespace signet::backend::gpu {

static_assert(kMaxMirrorParts == kMirrorSlots);

Status CopyMirrors(Stream stream, Direction direction,
                   std::span<const MirrorPart> parts) {
  SIGNET_CHECK(parts.size() <= kMaxMirrorParts);
  MirrorCopies copies;
  for (const MirrorPart& part : parts) {
    auto* const device = reinterpret_cast<unsigned char*>(part.device);
    auto* const host = reinterpret_cast<unsigned char*>(part.host);
    const bool in = direction == Direction::kToDevice;
    copies.from[copies.count] = in ? host : device;
    copies.to[copies.count] = in ? device : host;
    copies.bytes[copies.count] = part.bytes;
    ++copies.count;
  }
  if (copies.count == 0) return kOk;
  return LaunchMirrorCopies(stream, copies);
}

}  // namespace signet::backend::gpu
