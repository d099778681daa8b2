#pragma once
// The only reader of the environment: SIGNET_MODELS, HF_HUB_CACHE, HF_HOME and
// HOME. Empty counts as unset.

#include "signet/source.h"

namespace signet::cli {

/// Models: $SIGNET_MODELS. Hub: $HF_HUB_CACHE, else $HF_HOME/hub, else
/// $HOME/.cache/huggingface/hub. Demo: where a build tree or an installation
/// has it beside the executable, else in the sources it was built from.
SearchPaths SearchPathsOfEnvironment();

}  // namespace signet::cli
