#include "engine/bind_ranks.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/devices.h"
#include "exec/meeting_sizes.h"

namespace signet {

Result<std::unique_ptr<exec::MeshExecutor>> BindRanks(
    const Plan::Impl& made, const Engine::Impl& engine,
    std::shared_ptr<const store::WeightVersion> weights) {
  const topology::Mesh& mesh = made.plan->mesh();
  // The ranks of a machine share its threads, whichever process they are in.
  const auto sharing = static_cast<int>(RanksHere(mesh).size());
  const int threads = std::max(1, engine.threads / std::max(1, sharing));
  std::vector<exec::RankSetup> ranks;
  for (int r = 0; r < mesh.num_ranks(); ++r) {
    exec::RankSetup& setup = ranks.emplace_back();
    setup.programs = made.programs[static_cast<size_t>(r)];
    if (!made.IsHere(Rank(r))) continue;
    SIGNET_ASSIGN_OR_RETURN(setup.device,
                            engine.make_device(mesh.device(Rank(r)), threads));
  }
  exec::MakeGroups make_groups;
  if (made.world != nullptr) {
    make_groups = [&](backend::Device& device) {
      collective::World& world = *made.world->world;
      const auto own = static_cast<size_t>(world.rank());
      return world.MakeGroups(mesh, exec::MeetingSizesOf(made.programs[own]),
                              device);
    };
  }
  return exec::MeshExecutor::Make(*made.plan, std::move(weights),
                                  std::move(ranks), make_groups);
}

}  // namespace signet
