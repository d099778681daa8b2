#pragma once
// Fault::kOtherK: the plan somebody would make who read another config.

#include <memory>

#include "base/result.h"
#include "model/manifest.h"

namespace signet::evidence {

/// The manifest of the same files under a config with another number of experts
/// a token; null for a model that can have no other. The config is written to a
/// temporary folder, beside links to the files, which is gone on return.
Result<std::shared_ptr<const model::Manifest>> OtherK(
    const model::Manifest& manifest);

}  // namespace signet::evidence
