#pragma once
// The checkpoints that tests of whole programs run on: the generated ones of
// support/tiny_checkpoint.h, and the demo model.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace signet::testing {

inline constexpr const char* kDemo = "demo";

/// The folder of a checkpoint. A generated one is made by the first call, anew
/// in every program; the demo is models/demo, empty when that does not exist.
std::filesystem::path CheckpointFolder(const std::string& name);

/// `count` ids below `vocabulary`, from splitmix64.
std::vector<int32_t> SeededIds(int64_t vocabulary, int64_t count,
                               uint64_t seed);

}  // namespace signet::testing
