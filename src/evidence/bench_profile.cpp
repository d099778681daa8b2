#include "evidence/bench_profile.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/check.h"
#include "evidence/bench_spread.h"
#include "step/operands.h"

namespace signet::evidence {

namespace {

// The last buffer that a step writes anew; empty: none.
std::string_view Target(const step::Step& step,
                        const step::SealedProgram& program) {
  std::string_view target;
  step::ForEachOperand(step,
                       [&](std::string_view, BufferId id, step::Access access) {
                         if (access == step::Access::kWrite)
                           target = program.buffers()[id].name;
                       });
  return target;
}

// Whether `buffer` is `name`, that of a layer perhaps.
bool IsCalled(std::string_view buffer, std::string_view name) {
  if (buffer == name) return true;
  const size_t dot = buffer.find('.');
  return dot != std::string_view::npos && buffer.substr(dot + 1) == name;
}

Cost CostOfSteps(const BenchRun::Call& call, size_t first, size_t count,
                 double experts, int64_t top_k) {
  Cost sum;
  for (const step::Step& step : call.program->steps().subspan(first, count)) {
    const Cost cost = CostOf(step, *call.program, call.rows, experts, top_k);
    sum.bytes += cost.bytes;
    sum.operations += cost.operations;
  }
  return sum;
}

}  // namespace

std::optional<size_t> StepsIn(const step::SealedProgram& program, size_t first,
                              std::string_view name) {
  const size_t space = name.find(' ');
  const std::string_view wanted = name.substr(0, space);
  // Without a buffer: the last step only adds to state.
  const std::string_view target =
      space == std::string_view::npos ? "" : name.substr(space + 1);
  std::string kinds;
  std::string_view before;
  for (size_t i = first; i < program.steps().size(); ++i) {
    const step::Step& step = program.steps()[i];
    const std::string_view kind = KindName(step);
    if (kind != before) {
      if (!kinds.empty()) kinds += '+';
      kinds += kind;
    }
    before = kind;
    if (!wanted.starts_with(kinds)) return std::nullopt;
    if (kinds == wanted && IsCalled(Target(step, program), target)) {
      return i + 1 - first;
    }
  }
  return std::nullopt;
}

void ProfileBuilder::Add(const BenchRun::Call& call) {
  SIGNET_CHECK(call.times.has_value());
  const std::vector<double>& launches = call.times->launches;
  SIGNET_CHECK(launches.size() == call.bound->launches().size());
  seconds_.resize(launches.size());
  for (size_t i = 0; i < seconds_.size(); ++i) {
    seconds_[i].push_back(launches[i]);
  }
  nothing_.push_back(call.times->nothing);
  if (call.times->block_in_a_row) {
    block_in_a_row_.push_back(*call.times->block_in_a_row);
  }
  last_ = call;
}

Profile ProfileBuilder::Build(const plan::ModelPlan& plan,
                              double experts) const {
  Profile profile;
  if (last_.program == nullptr) return profile;
  const step::SealedProgram& program = *last_.program;
  profile.kind = program.shape().kind;
  profile.rows = last_.rows.live;
  profile.capacity = program.shape().rows;
  profile.calls = static_cast<int64_t>(nothing_.size());
  profile.nothing_seconds = SpreadOf(nothing_).median;
  if (!block_in_a_row_.empty()) {
    profile.block_in_a_row = SpreadOf(block_in_a_row_).median;
  }
  std::map<std::string, ProfileRow> rows;
  size_t step = 0;
  bool steps_known = true;
  for (size_t i = 0; i < seconds_.size(); ++i) {
    const std::string& name = last_.bound->names()[i];
    ProfileRow& row = rows[name];
    row.name = name.substr(0, name.find_last_not_of(' ') + 1);
    ++row.launches;
    const double seconds = SpreadOf(seconds_[i]).median;
    row.seconds += seconds;
    profile.seconds += seconds;
    const std::optional<size_t> count = StepsIn(program, step, name);
    steps_known = steps_known && count.has_value();
    if (!steps_known) continue;
    const Cost cost =
        CostOfSteps(last_, step, *count, experts, plan.config().top_k);
    if (!row.cost) row.cost.emplace();
    row.cost->bytes += cost.bytes;
    row.cost->operations += cost.operations;
    step += *count;
  }
  if (step != program.steps().size()) {
    for (auto& [name, row] : rows) row.cost.reset();
  }
  for (auto& [name, row] : rows) profile.launches.push_back(std::move(row));
  std::stable_sort(profile.launches.begin(), profile.launches.end(),
                   [](const ProfileRow& a, const ProfileRow& b) {
                     return a.seconds > b.seconds;
                   });
  return profile;
}

}  // namespace signet::evidence
