#include "exec/meetings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <tuple>
#include <utility>

#include "base/overload.h"

namespace signet::exec {
namespace {

using plan::CollectiveKind;
using topology::Axis;

std::string Spell(const std::vector<Rank>& ranks) {
  std::string text;
  for (const Rank rank : ranks) {
    if (!text.empty()) text += ',';
    text += std::to_string(rank.value());
  }
  return text.empty() ? "no ranks" : text;
}

std::string Spell(const Meeting& m) {
  return fmt::format(
      "{} of row {} over {}:{}, {} elements of {}, {} bytes, root {}",
      Name(m.kind), m.row.value(), Name(m.group.axis), Spell(m.group.ranks),
      m.elements, Name(m.dtype), m.bytes.value(), m.root.value());
}

bool SameMeeting(const Meeting& a, const Meeting& b) {
  const auto facts = [](const Meeting& m) {
    return std::tuple(m.kind, m.row, m.dtype, m.elements, m.bytes, m.root);
  };
  return facts(a) == facts(b);
}

// The groups that any rank names, each once whatever its order.
class Checker {
 public:
  Checker(const topology::Mesh& mesh,
          std::span<const std::span<const Meeting>> lists,
          const std::string& place, model::CappedRejections& findings)
      : mesh_(mesh), lists_(lists), place_(place), findings_(findings) {}

  bool Run() {
    group_of_.resize(lists_.size());
    for (size_t r = 0; r < lists_.size(); ++r) {
      for (size_t i = 0; i < lists_[r].size(); ++i) {
        sound_ = CheckGroup(r, i) && sound_;
        group_of_[r].push_back(Intern(lists_[r][i]));
      }
    }
    // What follows assumes that every rank is in the groups it names.
    if (!sound_) return false;
    for (size_t g = 0; g < groups_.size(); ++g) CheckMembersAgree(g);
    return sound_ && CheckAllTakePlace();
  }

 private:
  struct Group {
    Axis axis;
    bool transfer;
    std::vector<Rank> ranks;  // ascending
    // Positions of its meetings in the list of each of `ranks`.
    std::vector<std::vector<size_t>> at;
  };

  std::string Where(size_t rank, size_t index) const {
    return fmt::format("rank {}, {}, collective {}", rank, place_, index);
  }

  bool CheckGroup(size_t r, size_t index) {
    const Meeting& meeting = lists_[r][index];
    const Rank rank(static_cast<int32_t>(r));
    const step::GroupRef& group = meeting.group;
    bool sound = true;
    if (group.epoch != mesh_.epoch()) {
      findings_.Add(RejectionCode::kEpochStale, Where(r, index),
                    "the group is of another mesh", std::to_string(group.epoch),
                    std::to_string(mesh_.epoch()));
      sound = false;
    }
    const std::vector<Rank>& want = MeshGroup(group.axis, rank);
    const bool fits = meeting.kind == CollectiveKind::kBandTransfer
                          ? AreNeighbours(group, want, rank)
                          : group.ranks == want;
    if (fits) return sound;
    findings_.Add(RejectionCode::kGroupMismatch, Where(r, index),
                  meeting.kind == CollectiveKind::kBandTransfer
                      ? "the transfer is not between this rank's stage and a "
                        "neighbouring one"
                      : "the group is not the mesh's, in the mesh's order",
                  fmt::format("{}:{}", Name(group.axis), Spell(group.ranks)),
                  fmt::format("{}:{}", Name(group.axis), Spell(want)));
    return false;
  }

  const std::vector<Rank>& MeshGroup(Axis axis, Rank rank) {
    if (mesh_groups_.empty()) mesh_groups_.resize(lists_.size());
    std::vector<Rank>& group = mesh_groups_[static_cast<size_t>(rank.value())]
                                           [static_cast<size_t>(axis)];
    if (group.empty()) group = mesh_.Group(axis, rank);
    return group;
  }

  static bool AreNeighbours(const step::GroupRef& group,
                            const std::vector<Rank>& line, Rank rank) {
    if (group.axis != Axis::kPp || group.ranks.size() != 2) return false;
    const auto source =
        std::find(line.begin(), line.end(), group.ranks.front());
    return source != line.end() && source + 1 != line.end() &&
           *(source + 1) == group.ranks.back() &&
           (group.ranks.front() == rank || group.ranks.back() == rank);
  }

  size_t Intern(const Meeting& meeting) {
    const bool transfer = meeting.kind == CollectiveKind::kBandTransfer;
    const std::vector<Rank>* ranks = &meeting.group.ranks;
    std::vector<Rank> sorted;
    if (!std::is_sorted(ranks->begin(), ranks->end())) {
      sorted = *ranks;
      std::sort(sorted.begin(), sorted.end());
      ranks = &sorted;
    }
    for (size_t g = 0; g < groups_.size(); ++g) {
      if (groups_[g].axis == meeting.group.axis &&
          groups_[g].transfer == transfer && groups_[g].ranks == *ranks) {
        return g;
      }
    }
    groups_.push_back({.axis = meeting.group.axis,
                       .transfer = transfer,
                       .ranks = *ranks,
                       .at = {}});
    return groups_.size() - 1;
  }

  // The same meetings in the same order on every member.
  void CheckMembersAgree(size_t g) {
    Group& group = groups_[g];
    for (const Rank rank : group.ranks) {
      const auto r = static_cast<size_t>(rank.value());
      std::vector<size_t>& at = group.at.emplace_back();
      for (size_t i = 0; i < group_of_[r].size(); ++i) {
        if (group_of_[r][i] == g) at.push_back(i);
      }
    }
    const auto first = static_cast<size_t>(group.ranks.front().value());
    for (size_t m = 1; m < group.ranks.size(); ++m) {
      const auto r = static_cast<size_t>(group.ranks[m].value());
      if (group.at[m].size() != group.at[0].size()) {
        findings_.Add(
            RejectionCode::kMeetingMismatch,
            fmt::format("rank {}, {}", r, place_),
            fmt::format("{} {} with another number of {} than rank {}",
                        Name(group.axis), Spell(group.ranks),
                        group.transfer ? "band transfers" : "collectives",
                        first),
            std::to_string(group.at[m].size()),
            std::to_string(group.at[0].size()));
        sound_ = false;
      }
      const size_t common = std::min(group.at[m].size(), group.at[0].size());
      for (size_t i = 0; i < common; ++i) {
        const Meeting& want = lists_[first][group.at[0][i]];
        const Meeting& got = lists_[r][group.at[m][i]];
        if (SameMeeting(want, got)) continue;
        findings_.Add(RejectionCode::kMeetingMismatch, Where(r, group.at[m][i]),
                      fmt::format("not what rank {} meets it with", first),
                      Spell(got), Spell(want));
        sound_ = false;
        break;  // what follows is shifted
      }
    }
  }

  // Every meeting waits for all its members. Which of several possible ones
  // takes place first changes nothing, so one run shows whether all can.
  bool CheckAllTakePlace() {
    std::vector<size_t> next(lists_.size(), 0);
    std::vector<size_t> todo;
    for (size_t r = 0; r < lists_.size(); ++r) todo.push_back(r);
    const auto waits_in = [&](size_t r) -> std::optional<size_t> {
      if (next[r] == group_of_[r].size()) return std::nullopt;
      return group_of_[r][next[r]];
    };
    while (!todo.empty()) {
      const size_t r = todo.back();
      todo.pop_back();
      const std::optional<size_t> g = waits_in(r);
      if (!g) continue;
      const std::vector<Rank>& ranks = groups_[*g].ranks;
      const bool all = std::all_of(ranks.begin(), ranks.end(), [&](Rank rank) {
        return waits_in(static_cast<size_t>(rank.value())) == g;
      });
      if (!all) continue;
      for (const Rank rank : ranks) {
        ++next[static_cast<size_t>(rank.value())];
        todo.push_back(static_cast<size_t>(rank.value()));
      }
    }
    bool all_took_place = true;
    for (size_t r = 0; r < lists_.size(); ++r) {
      if (!waits_in(r)) continue;
      all_took_place = false;
      findings_.Add(RejectionCode::kMeetingCycle, Where(r, next[r]),
                    "ranks would wait for each other in a circle",
                    Spell(lists_[r][next[r]]));
    }
    return all_took_place;
  }

  const topology::Mesh& mesh_;
  const std::span<const std::span<const Meeting>> lists_;
  const std::string& place_;
  model::CappedRejections& findings_;
  // [rank][axis], made when first asked for.
  std::vector<std::array<std::vector<Rank>, topology::kAllAxes.size()>>
      mesh_groups_;
  std::vector<Group> groups_;
  std::vector<std::vector<size_t>> group_of_;  // [rank][meeting]
  bool sound_ = true;
};

BufferId Present(std::optional<BufferId> id) {
  return id.value_or(step::kNoBuffer);
}

}  // namespace

std::vector<Meeting> MeetingsOf(const ProgramParts& program) {
  std::vector<Meeting> meetings;
  size_t index = 0;
  // `payload` names what all members agree on the size of.
  const auto add = [&](const auto& s, CollectiveKind kind, BufferId payload,
                       std::optional<Rank> root) {
    if (s.group.ranks.size() < 2) return;
    const step::BufferDecl& buffer = program.buffers[payload];
    meetings.push_back(
        {.kind = kind,
         .row = s.row,
         .group = s.group,
         .dtype = buffer.dtype,
         .elements = static_cast<int64_t>(buffer.shape.NumElements().value()),
         .bytes = buffer.shape.StorageBytes(buffer.dtype),
         .root = root.value_or(s.group.ranks.front()),
         .step = index});
  };
  for (const step::Step& step : program.steps) {
    std::visit(
        Overload{[&](const step::AllReduce& s) {
                   add(s, CollectiveKind::kAllReduce, s.out, std::nullopt);
                   if (s.group.ranks.size() > 1) {
                     meetings.back().elements = s.elements;
                   }
                 },
                 // The parts may differ: the last one is the shorter.
                 [&](const step::Gather& s) {
                   add(s, CollectiveKind::kGather, s.out, std::nullopt);
                 },
                 [&](const step::Broadcast& s) {
                   add(s, CollectiveKind::kBroadcast, s.out, s.root);
                 },
                 // The source may have no place for it, the target no origin.
                 [&](const step::BandTransfer& s) {
                   const BufferId x = Present(s.x);
                   add(s, CollectiveKind::kBandTransfer,
                       program.buffers.Contains(x) ? x : Present(s.out),
                       std::nullopt);
                 },
                 [](const auto&) {}},
        step);
    ++index;
  }
  return meetings;
}

bool CheckMeetings(const topology::Mesh& mesh,
                   std::span<const std::span<const Meeting>> lists,
                   const std::string& place,
                   model::CappedRejections& findings) {
  return Checker(mesh, lists, place, findings).Run();
}

}  // namespace signet::exec
