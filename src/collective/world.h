#pragma once
// The processes of one run, one rank each, as this process sees them. Every
// wait has a deadline and ends in the name of the rank that was missing. One
// thread.

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backend/device.h"
#include "base/result.h"
#include "collective/rank_groups.h"
#include "topology/mesh.h"

namespace signet::collective {

/// The largest meetings of a rank's programs, along each axis.
struct MeetingSizes {
  int64_t reduce_elements = 0;
  uint64_t gather_bytes = 0;  // of the whole output
};
using AxisSizes = std::array<MeetingSizes, topology::kAllAxes.size()>;

class World {
 public:
  virtual ~World() = default;
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// How long a rank may be silent.
  virtual std::chrono::milliseconds deadline() const = 0;

  /// Every rank's bytes, in rank order; each rank calls it as often. Failure
  /// kDevice names a rank that was silent past the deadline, or is not in the
  /// same exchange.
  virtual Result<std::vector<std::string>> Exchange(std::string_view own) = 0;
  /// A sign of life, while this rank works long without a message.
  virtual void Beat() = 0;
  /// The groups of this rank, with the memory their meetings need: RankStaging
  /// of it, of `device`. The world and the device outlive them.
  virtual Result<std::unique_ptr<RankGroups>> MakeGroups(
      const topology::Mesh& mesh, const AxisSizes& sizes,
      backend::Device& device) = 0;
  /// The orderly end, together with all others. Nothing else may follow.
  virtual Result<void> Leave() = 0;
  /// Ends every process of the run, at once.
  [[noreturn]] virtual void Abort(int exit_code) = 0;

 protected:
  World() = default;
};

}  // namespace signet::collective
