#pragma once
// Fault::kSwapExperts: a device whose mapped files hold the experts of one
// layer in pairs changed places. The files themselves are not touched: the
// mapping is private, and only its written pages are copied.

#include <memory>

#include "backend/device.h"
#include "model/manifest.h"

namespace signet::evidence {

/// Wraps `device`. `manifest` has at least one expert group of two experts; it
/// must outlive the result.
std::unique_ptr<backend::Device> SwapExperts(
    std::unique_ptr<backend::Device> device, const model::Manifest& manifest);

}  // namespace signet::evidence
