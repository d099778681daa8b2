// Stands in for the transport in a build without MPI.

#include "collective/mpi/mpi_world.h"

namespace signet::collective {

Result<std::unique_ptr<World>> StartMpi(std::chrono::milliseconds) {
  return Reject(
      RejectionCode::kLauncherInvalid, "--launcher",
      "this build has no MPI; build where libopenmpi-dev is installed", "mpi",
      "threads");
}

}  // namespace signet::collective
