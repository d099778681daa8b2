#pragma once
// What the processes of a world tell each other of their devices and plans.

#include <span>
#include <string_view>
#include <vector>

#include "engine/plan_impl.h"
#include "engine/world_impl.h"
#include "signet/session.h"
#include "topology/mesh.h"

namespace signet {

/// Each process chooses the device of its own rank (see ChooseDevices); then
/// all know all of them. kLauncherInvalid when the processes are not as many
/// as the mesh has ranks.
Result<std::vector<topology::DeviceIdentity>> MeetDevices(
    World::Impl& world, std::string_view mesh, std::string_view devices);

/// Of which mesh a plan is, and what is made from it (contract M3).
Facts EpochFacts(const Plan::Impl& plan);

/// What must be equal on all ranks before anything runs (contract F3).
Facts PlanFacts(const Plan::Impl& plan);

/// What every rank must be asked for, of a session on the plan.
Facts RequestFacts(const Plan::Impl& plan, std::span<const Request> requests);

}  // namespace signet
