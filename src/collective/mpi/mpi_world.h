#pragma once
// The world that mpirun, or Slurm, started through MPI.

#include <chrono>
#include <memory>

#include "base/result.h"
#include "collective/world.h"

namespace signet::collective {

/// Initialises MPI, which may take 30 seconds whatever the deadline; once a
/// process. kLauncherInvalid in a build without MPI.
Result<std::unique_ptr<World>> StartMpi(std::chrono::milliseconds deadline);

}  // namespace signet::collective
