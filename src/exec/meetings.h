#pragma once
// The collectives and band transfers of all ranks as one schedule (contract
// F2): who meets whom, in which order, with what. Pure; any thread.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/id.h"
#include "exec/program_parts.h"
#include "model/manifest.h"
#include "model/rejection_cap.h"
#include "step/steps.h"
#include "tensor/dtype.h"
#include "topology/mesh.h"

namespace signet::exec {

/// One collective as one of its members sees it.
struct Meeting {
  plan::CollectiveKind kind;
  ScheduleRow row;
  step::GroupRef group;
  tensor::DType dtype;
  int64_t elements;  // that the members must agree on
  Bytes bytes;       // the same, as they travel
  Rank root;         // of a broadcast; else the first of the group
  size_t step;       // its index in the program; not compared
};

/// In the order of the program's steps; those of one rank are left out.
std::vector<Meeting> MeetingsOf(const ProgramParts& program);

/// `lists`: for each rank of `mesh` its meetings, in order. Proves that
///   - each group is the mesh's, in its order and of its epoch, and holds the
///     rank; a transfer is between neighbouring stages;
///   - the members of a group have the same meetings in the same order: kind,
///     row, elements, bytes, dtype, root;
///   - all of them can take place: no rank waits for another in a circle.
/// kEpochStale, kGroupMismatch, kMeetingMismatch, kMeetingCycle; `place` names
/// the lists in messages ("decode of 4 rows"). True when all of it holds.
bool CheckMeetings(const topology::Mesh& mesh,
                   std::span<const std::span<const Meeting>> lists,
                   const std::string& place, model::CappedRejections& findings);

}  // namespace signet::exec
