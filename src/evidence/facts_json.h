#pragma once
// What every record says of the program and the devices it was made with.

#include <nlohmann/json.hpp>
#include <string>

#include "topology/mesh.h"

namespace signet::evidence {

/// version, commit (or null), build, execution_code, compiler, flags.
void AddBuildFacts(const std::string& build, nlohmann::ordered_json& record);

nlohmann::ordered_json DeviceJson(const topology::DeviceIdentity& device);

}  // namespace signet::evidence
