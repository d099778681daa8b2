#pragma once
// Where the time of a call goes: its launches by name, summed over layers. One
// thread.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "evidence/bench_run.h"
#include "evidence/bench_steps.h"
#include "plan/model_plan.h"
#include "plan/program_shape.h"
#include "step/program.h"

namespace signet::evidence {

/// Launches of one name.
struct ProfileRow {
  std::string name;
  int64_t launches = 0;
  double seconds = 0;        // of all of them
  std::optional<Cost> cost;  // of all of them; unset: of unknown steps
};

struct Profile {
  plan::ShapeKind kind = plan::ShapeKind::kDecode;
  /// One launch a step where the programs that serve have fused ones.
  bool unfused = false;
  int64_t rows = 0;      // live ones
  int64_t capacity = 0;  // rows of the program
  int64_t calls = 0;
  double seconds = 0;          // of a call: the sum over its launches
  double nothing_seconds = 0;  // of no launch: what timing adds to each
  /// Of one routed block, those of all layers after one another, if each is one
  /// launch.
  std::optional<double> block_in_a_row;
  /// Of the same call as it is served, by the host's clock; unset if unfused.
  std::optional<double> served_seconds;
  std::vector<ProfileRow> launches;  // the slowest first
};

/// How many steps from `first` on a launch called `name` does (see
/// BoundProgram::names); nothing if they are not what it says.
std::optional<size_t> StepsIn(const step::SealedProgram& program, size_t first,
                              std::string_view name);

/// Takes in calls of one program and one number of rows, timed by launch.
class ProfileBuilder {
 public:
  void Add(const BenchRun::Call& call);
  /// Medians over the calls of the time of each launch; costs of the last call,
  /// in which each layer met `experts` experts.
  Profile Build(const plan::ModelPlan& plan, double experts) const;

 private:
  BenchRun::Call last_;
  std::vector<std::vector<double>> seconds_;  // [launch][call]
  std::vector<double> block_in_a_row_;        // [call], if any
  std::vector<double> nothing_;               // [call]
};

}  // namespace signet::evidence
