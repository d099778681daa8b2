#pragma once
// Several processes that run one model together, one rank each. Every process
// makes the same calls; what they find is exchanged and compared before
// anything runs (contract F3), and an error is the same on all of them. A
// cheap shared handle; one thread.

#include <chrono>
#include <memory>
#include <string>

#include "signet/error.h"

namespace signet {

struct WorldOptions {
  /// Identifies the program; processes of different builds refuse each other.
  std::string build_id;
  /// How long a rank may be silent before the run is given up.
  std::chrono::milliseconds deadline = std::chrono::seconds(60);
};

class World {
 public:
  /// The processes that mpirun or Slurm started. Once a process.
  /// kLauncherInvalid in a build without MPI, kRanksDisagree when the builds
  /// differ.
  static Result<World> JoinMpi(const WorldOptions& options);

  int rank() const;  // 0 ... size() - 1
  int size() const;
  /// Tells the others of an error that this process alone may have met; theirs
  /// then end in it. Gives back what all of them end in.
  Error Share(const Error& error);
  /// Whether a rank was lost: then nothing can be shared any more, and the run
  /// can only be aborted.
  bool lost() const;
  /// The orderly end, together with all others; nothing may follow. Failure:
  /// kState when a rank was lost.
  Result<void> Leave();
  /// Ends all processes at once, after output is flushed.
  [[noreturn]] void Abort(int exit_code);

  struct Impl;

 private:
  friend class Plan;
  friend class Engine;
  friend class Session;
  static Result<World> Join(const WorldOptions& options);
  explicit World(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace signet
