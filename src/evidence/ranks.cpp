#include "evidence/ranks.h"

#include <algorithm>
#include <span>
#include <utility>

#include "engine/device_factory.h"

namespace signet::evidence {

Result<std::vector<std::unique_ptr<backend::Device>>> MakeDevices(
    const topology::Mesh& mesh, int threads) {
  const DeviceFactory make_device = MachineDevices();
  std::vector<std::unique_ptr<backend::Device>> devices;
  for (int r = 0; r < mesh.num_ranks(); ++r) {
    SIGNET_ASSIGN_OR_RETURN(std::unique_ptr<backend::Device> device,
                            make_device(mesh.device(Rank(r)), threads));
    devices.push_back(std::move(device));
  }
  return devices;
}

Result<std::unique_ptr<exec::MeshExecutor>> StartRanks(
    const plan::ModelPlan& plan,
    const std::vector<std::vector<step::SealedProgram>>& programs,
    std::shared_ptr<const store::WeightVersion> weights, int threads,
    const std::vector<exec::TapObserver*>& observers) {
  SIGNET_ASSIGN_OR_RETURN(
      std::vector<std::unique_ptr<backend::Device>> devices,
      MakeDevices(plan.mesh(), std::max(1, threads / plan.mesh().num_ranks())));
  std::vector<exec::RankSetup> ranks;
  for (size_t r = 0; r < devices.size(); ++r) {
    ranks.push_back({.device = std::move(devices[r]),
                     .programs = programs[r],
                     .observer = observers.empty() ? nullptr : observers[r]});
  }
  return exec::MeshExecutor::Make(plan, std::move(weights), std::move(ranks));
}

}  // namespace signet::evidence
