#pragma once
// What one rank holds of the weights: addresses in the mapped files, or copies
// in memory of its own where the plan spreads experts or cuts weights
// (contract P2, P3). Used by LoadTransaction alone; one thread.

#include <functional>

#include "backend/device.h"
#include "backend/launch_key.h"
#include "backend/memory.h"
#include "base/id.h"
#include "base/result.h"
#include "plan/model_plan.h"
#include "store/weight_version.h"

namespace signet::store {

using Progress = std::function<void(Bytes done, Bytes total)>;

/// Reserves the rank's memory on `device`, exactly the bytes that the plan
/// says, and fills it from the mappings, which must hold every range of the
/// manifest and outlive the result. `progress`, which may be empty, counts the
/// bytes copied. Failure: kMemory, kDevice, kIo; nothing is kept.
Result<WeightVersion::RankWeights> LoadRank(
    backend::LoadKey key, const plan::ModelPlan& plan,
    const IdVector<FileId, backend::FileMapping>& mappings, Rank rank,
    backend::Device& device, const Progress& progress);

}  // namespace signet::store
