#include "evidence/facts_json.h"

#include "backend/gpu_devices.h"
#include "engine/devices.h"
#include "evidence/build_facts.h"
#include "signet/version.h"

namespace signet::evidence {

using Json = nlohmann::ordered_json;

void AddBuildFacts(const std::string& build, Json& record) {
  const BuildFacts facts = FactsOfThisBuild();
  record["version"] = Version();
  record["commit"] = facts.commit.empty() ? Json(nullptr) : Json(facts.commit);
  record["build"] = build;
  record["execution_code"] = facts.execution_code;
  record["compiler"] = facts.compiler;
  record["flags"] = facts.flags;
}

Json DeviceJson(const topology::DeviceIdentity& device) {
  return {{"name", DeviceName(device)},
          {"identity", device.uuid},
          {"pci", device.pci},
          {"architecture", device.architecture},
          {"memory_bytes", device.memory_bytes},
          {"driver", device.is_gpu() ? Json(backend::GpuDriverVersion())
                                     : Json(nullptr)}};
}

}  // namespace signet::evidence
