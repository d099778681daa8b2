#pragma once
// Where an engine's devices come from: the one place that names a backend, and
// the seam at which tests watch devices and inject faults (contract T5). Not
// part of the public API.

#include <functional>
#include <memory>

#include "backend/device.h"
#include "base/result.h"
#include "signet/engine.h"
#include "topology/mesh.h"

namespace signet {

/// Makes the device of a rank with a number of threads, its driver included.
/// Called on the thread that loads a model or makes a session.
using DeviceFactory = std::function<Result<std::unique_ptr<backend::Device>>(
    const topology::DeviceIdentity& identity, int num_threads)>;

/// Devices of this machine.
DeviceFactory MachineDevices();

/// An engine whose models and sessions take their devices from `factory`.
Result<Engine> MakeEngine(const EngineOptions& options, DeviceFactory factory);

}  // namespace signet
