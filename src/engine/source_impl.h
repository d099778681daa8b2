#pragma once
// What a public Source holds.

#include <memory>

#include "base/result.h"
#include "model/config.h"
#include "model/manifest.h"
#include "signet/source.h"

namespace signet {

struct Source::Impl {
  std::shared_ptr<const model::Checkpoint> checkpoint;
  std::shared_ptr<const model::Manifest> manifest;
  model::GenerationConfig generation;
  Result<void> chat;  // why no conversation can be rendered, if so
};

}  // namespace signet
