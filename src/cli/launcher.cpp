#include "cli/launcher.h"

#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <utility>

#include "cli/build_id.h"
#include "cli/exit_code.h"
#include "cli/flags.h"
#include "cli/report.h"

namespace signet::cli {

void Launcher::AddFlags(CLI::App& app) {
  AddFlag(app, "--launcher", "HOW",
          "Where the ranks run: threads of this process (the default), or mpi: "
          "one process each, started by mpirun",
          [this](const std::string& text) -> std::string {
            mpi_ = text == "mpi";
            return mpi_ || text == "threads" ? "" : "threads or mpi";
          });
  AddInteger(
      app, "--deadline",
      "Seconds a rank of --launcher mpi may be silent (default 60)", 1, 86400,
      [this](int64_t value) { deadline_ = std::chrono::seconds(value); });
}

Result<void> Launcher::Join() {
  if (!mpi_) return {};
  Result<World> world =
      World::JoinMpi({.build_id = BuildId(), .deadline = deadline_});
  if (!world) return tl::unexpected<Error>(std::move(world).error());
  world_ = *std::move(world);
  return {};
}

int Launcher::Report(const Error& error, bool json) const {
  if (speaks()) return cli::Report(error, json);
  // Rank 0 may be the one that was lost.
  if (world_->lost()) {
    fmt::print(stderr, "rank {}: {}\n", world_->rank(), Describe(error));
  }
  return ExitCode(error);
}

int Launcher::ReportOwn(const Error& error, bool json) {
  return Report(world_ ? world_->Share(error) : error, json);
}

int Launcher::Leave(int code) {
  if (!world_) return code;
  const bool was_lost = world_->lost();
  const Result<void> left = world_->Leave();
  if (left) return code;
  if (!was_lost) {
    fmt::print(stderr, "rank {}: {}\n", world_->rank(), Describe(left.error()));
  }
  world_->Abort(code == kExitDone ? kExitFailed : code);
}

int Launcher::End(int code) {
  if (world_ && world_->size() > 1) world_->Abort(code);
  return code;
}

}  // namespace signet::cli
