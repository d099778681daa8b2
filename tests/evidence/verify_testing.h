#pragma once
// Requests to verify the demo and the generated checkpoints.

#include <filesystem>
#include <string>
#include <vector>

#include "evidence/verify.h"

namespace signet::testing {

std::filesystem::path Demo();
/// A generated checkpoint (support/tiny_checkpoint.h), written once.
std::filesystem::path Tiny(const std::string& name);

/// Sides of `meshes` over a prompt of ids that fills a small chunk and begins
/// another; prefill chunks of 8 and 16.
evidence::VerifyRequest RequestFor(const std::filesystem::path& model,
                                   const std::vector<std::string>& meshes,
                                   int64_t positions);

}  // namespace signet::testing
