#pragma once
// The canonical rendering of a plan (contract P6): what every rank must agree
// on, and nothing that differs between machines: no UUID, epoch, path or
// address.

#include <string>

namespace signet::plan {

class ModelPlan;

/// Reads everything of `plan` but the contract text and id.
std::string ContractText(const ModelPlan& plan);

}  // namespace signet::plan
