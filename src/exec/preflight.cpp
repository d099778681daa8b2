#include "exec/preflight.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "base/overload.h"

namespace signet::exec {
namespace {

// One meeting of a group, as a rank sees it.
struct Meeting {
  std::string_view kind;
  ScheduleRow row;
  const step::GroupRef* group;
  int64_t elements;  // of all-reduces; 0 otherwise
};

std::vector<Meeting> Meetings(const step::SealedProgram& program) {
  std::vector<Meeting> meetings;
  const auto add = [&](const auto& s, int64_t elements) {
    meetings.push_back({s.kName, s.row, &s.group, elements});
  };
  for (const step::Step& step : program.steps()) {
    std::visit(Overload{[&](const step::AllReduce& s) { add(s, s.elements); },
                        [&](const step::Gather& s) { add(s, 0); },
                        [&](const step::Broadcast& s) { add(s, 0); },
                        [&](const step::BandTransfer& s) { add(s, 0); },
                        [](const auto&) {}},
               step);
  }
  return meetings;
}

std::string Where(int rank, const plan::ProgramShape& shape) {
  return fmt::format("rank {}, {} of {} rows", rank, Name(shape.kind),
                     shape.rows);
}

Rank FirstOfStage(const topology::Mesh& mesh, Rank rank) {
  for (int r = 0; r < mesh.num_ranks(); ++r) {
    if (mesh.Coordinate(topology::Axis::kPp, Rank(r)) ==
        mesh.Coordinate(topology::Axis::kPp, rank)) {
      return Rank(r);
    }
  }
  return rank;
}

void CompareMeetings(const std::vector<Meeting>& first,
                     const std::vector<Meeting>& other, int rank,
                     const std::string& where, RejectionList& rejections) {
  if (first.size() != other.size()) {
    rejections.Add(RejectionCode::kGroupMismatch, where,
                   "another number of collectives than rank 0",
                   std::to_string(other.size()), std::to_string(first.size()));
    return;
  }
  for (size_t i = 0; i < first.size(); ++i) {
    const Meeting& a = first[i];
    const Meeting& b = other[i];
    const bool listed = std::find(b.group->ranks.begin(), b.group->ranks.end(),
                                  Rank(rank)) != b.group->ranks.end();
    const bool same_group =
        a.kind == step::BandTransfer::kName || a.kind == step::Broadcast::kName
            ? a.group->axis == b.group->axis
            : *a.group == *b.group;
    if (a.kind == b.kind && a.row == b.row && same_group &&
        a.elements == b.elements && listed) {
      continue;
    }
    rejections.Add(RejectionCode::kGroupMismatch, where,
                   fmt::format("collective {} is not that of rank 0", i),
                   fmt::format("{} row {} of {} elements", b.kind,
                               b.row.value(), b.elements),
                   fmt::format("{} row {} of {} elements", a.kind,
                               a.row.value(), a.elements));
  }
}

}  // namespace

Result<void> Preflight(
    const plan::ModelPlan& plan,
    const std::vector<std::span<const step::SealedProgram>>& programs) {
  RejectionList rejections;
  const std::vector<plan::ProgramShape>& shapes = plan.shapes();
  for (size_t r = 0; r < programs.size(); ++r) {
    const int rank = static_cast<int>(r);
    if (programs[r].size() != shapes.size()) {
      rejections.Add(
          RejectionCode::kProgramHeaderMismatch, fmt::format("rank {}", rank),
          "not one program a shape of the plan",
          std::to_string(programs[r].size()), std::to_string(shapes.size()));
      continue;
    }
    for (size_t i = 0; i < shapes.size(); ++i) {
      const step::SealedProgram& program = programs[r][i];
      const std::string where = Where(rank, shapes[i]);
      if (program.rank() != Rank(rank) || program.shape() != shapes[i] ||
          program.contract() != plan.contract_id()) {
        rejections.Add(RejectionCode::kProgramHeaderMismatch, where,
                       "the program is of another rank, shape or contract");
        continue;
      }
      // Ranks of one stage meet alike.
      const Rank first = FirstOfStage(plan.mesh(), Rank(rank));
      const auto& peers = programs[static_cast<size_t>(first.value())];
      if (peers.size() != shapes.size()) continue;
      CompareMeetings(Meetings(peers[i]), Meetings(program), rank, where,
                      rejections);
    }
  }
  if (!rejections.empty()) return rejections.Take();
  return {};
}

}  // namespace signet::exec
