#include "exec/preflight.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>

namespace signet::exec {
namespace {

using Findings = model::CappedRejections;

std::string PlaceOf(const plan::ProgramShape& shape) {
  return fmt::format("{} of {} rows", Name(shape.kind), shape.rows);
}

bool CheckHeader(const step::SealedProgram& program,
                 const plan::ModelPlan& plan, int rank,
                 const plan::ProgramShape& shape, Findings& findings) {
  const std::string where = fmt::format("rank {}, {}", rank, PlaceOf(shape));
  if (program.contract() != plan.contract_id()) {
    findings.Add(RejectionCode::kProgramHeaderMismatch, where,
                 "the program is of another contract", program.contract().Hex(),
                 plan.contract_id().Hex());
  }
  if (program.rank() == Rank(rank) && program.shape() == shape) return true;
  findings.Add(RejectionCode::kProgramHeaderMismatch, where,
               "the program is of another rank or shape",
               fmt::format("rank {}, {}", program.rank().value(),
                           PlaceOf(program.shape())));
  return false;
}

// The blocks of a rank that end in a collective over one group, in order.
std::vector<const SignedBlock*> BlocksOver(const std::vector<Rank>& group,
                                           const RankSchedule& rank) {
  std::vector<const SignedBlock*> over;
  size_t m = 0;
  for (const SignedBlock& block : rank.blocks) {
    while (m < rank.meetings.size() && rank.meetings[m].step != block.step) {
      ++m;
    }
    if (m == rank.meetings.size()) break;
    if (rank.meetings[m].group.ranks == group) over.push_back(&block);
  }
  return over;
}

// Each block against that of the first rank of its group. The meetings are
// proven, so the members of a group have as many blocks.
void CompareBlocks(const topology::Mesh& mesh,
                   std::span<const RankSchedule> ranks,
                   const std::string& place, Findings& findings) {
  for (const topology::Axis axis : topology::kAllAxes) {
    for (size_t r = 0; r < ranks.size(); ++r) {
      const Rank rank(static_cast<int32_t>(r));
      const std::vector<Rank> group = mesh.Group(axis, rank);
      const Rank first = group.front();
      if (first == rank) continue;
      const auto want =
          BlocksOver(group, ranks[static_cast<size_t>(first.value())]);
      const auto got = BlocksOver(group, ranks[r]);
      for (size_t i = 0; i < std::min(want.size(), got.size()); ++i) {
        const auto where = [&] {
          return fmt::format("rank {}, {}, step {}", r, place, got[i]->step);
        };
        CompareSignatures(want[i]->signature, got[i]->signature, where, first,
                          findings);
      }
    }
  }
}

}  // namespace

void CheckSchedules(const topology::Mesh& mesh,
                    std::span<const RankSchedule> ranks,
                    const std::string& place, Findings& findings) {
  std::vector<std::span<const Meeting>> meetings;
  for (const RankSchedule& rank : ranks) meetings.push_back(rank.meetings);
  if (CheckMeetings(mesh, meetings, place, findings)) {
    CompareBlocks(mesh, ranks, place, findings);
  }
}

void CheckDevices(std::span<const topology::DeviceIdentity> devices,
                  bool emulated, Findings& findings) {
  std::set<std::string_view> seen;
  for (size_t r = 0; r < devices.size(); ++r) {
    if (seen.insert(devices[r].uuid).second) continue;
    if (emulated && devices[r].backend != "cpu") continue;
    findings.Add(RejectionCode::kDeviceRepeated, fmt::format("rank {}", r),
                 "another rank is on the same device", devices[r].uuid);
  }
}

Result<void> Preflight(
    const plan::ModelPlan& plan,
    const std::vector<std::span<const step::SealedProgram>>& programs) {
  Findings findings;
  const topology::Mesh& mesh = plan.mesh();
  std::vector<topology::DeviceIdentity> devices;
  for (int r = 0; r < mesh.num_ranks(); ++r) {
    devices.push_back(mesh.device(Rank(r)));
  }
  CheckDevices(devices, mesh.emulated(), findings);

  const std::vector<plan::ProgramShape>& shapes = plan.shapes();
  bool complete = static_cast<int>(programs.size()) == mesh.num_ranks();
  if (!complete) {
    findings.Add(RejectionCode::kProgramHeaderMismatch, "mesh",
                 "not the programs of every rank",
                 std::to_string(programs.size()),
                 std::to_string(mesh.num_ranks()));
  }
  for (size_t r = 0; r < programs.size(); ++r) {
    if (programs[r].size() == shapes.size()) continue;
    complete = false;
    findings.Add(
        RejectionCode::kProgramHeaderMismatch, fmt::format("rank {}", r),
        "not one program a shape of the plan",
        std::to_string(programs[r].size()), std::to_string(shapes.size()));
  }
  for (size_t i = 0; complete && i < shapes.size(); ++i) {
    bool comparable = true;
    for (size_t r = 0; r < programs.size(); ++r) {
      comparable &= CheckHeader(programs[r][i], plan, static_cast<int>(r),
                                shapes[i], findings);
    }
    if (!comparable) continue;
    std::vector<RankSchedule> schedules;
    for (const std::span<const step::SealedProgram>& rank : programs) {
      schedules.push_back({.meetings = MeetingsOf(rank[i]),
                           .blocks = SignaturesOf(rank[i], plan)});
    }
    CheckSchedules(mesh, schedules, PlaceOf(shapes[i]), findings);
  }
  RejectionList rejections;
  findings.FlushInto("mesh", &rejections);
  if (!rejections.empty()) return rejections.Take();
  return {};
}

}  // namespace signet::exec
