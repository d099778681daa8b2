#pragma once
// What is compared between the ranks before any of them launches (contract
// F2): host only, all ranks, all reasons.

#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "exec/meetings.h"
#include "exec/signature.h"
#include "model/rejection_cap.h"
#include "plan/model_plan.h"
#include "step/program.h"
#include "topology/mesh.h"

namespace signet::exec {

/// `programs`: for each rank, in rank order, its sealed programs in the order
/// of the plan's shapes. Proves that
///   - every rank has a program of every shape, its own, under the plan's
///     contract [program_header_mismatch];
///   - the signatures of each block are equal within its group
///     [signature_mismatch];
///   - the collectives of all ranks are one schedule (exec/meetings.h);
///   - no two ranks are on one device [device_repeated].
Result<void> Preflight(
    const plan::ModelPlan& plan,
    const std::vector<std::span<const step::SealedProgram>>& programs);

/// What one rank's program of one shape is compared by.
struct RankSchedule {
  std::vector<Meeting> meetings;
  std::vector<SignedBlock> blocks;
};

/// The part of Preflight that compares one shape, over plain values: one
/// schedule a rank of `mesh`. `place` names the shape in messages.
void CheckSchedules(const topology::Mesh& mesh,
                    std::span<const RankSchedule> ranks,
                    const std::string& place,
                    model::CappedRejections& findings);

/// M4: an identity stands for one rank; only GPUs may be emulated.
void CheckDevices(std::span<const topology::DeviceIdentity> devices,
                  bool emulated, model::CappedRejections& findings);

}  // namespace signet::exec
