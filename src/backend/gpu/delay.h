#pragma once
// Keeps a stream busy for a while, so that launches queue up behind.

#include <chrono>

#include "backend/gpu/vendor.h"

namespace signet::backend::gpu {

Status LaunchDelay(Stream stream, std::chrono::nanoseconds duration);

}  // namespace signet::backend::gpu
