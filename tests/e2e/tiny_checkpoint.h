#pragma once
// A tiny checkpoint with random weights, written once by `signet synth`, and
// damaged copies of it.

#include <filesystem>
#include <string>
#include <string_view>

#include "e2e/process.h"

namespace signet::testing {

/// Runs the binary under test.
Outcome Signet(const Invocation& invocation);
Outcome Signet(std::vector<std::string> arguments);

/// A folder that goes when the test program ends.
std::filesystem::path ScratchFolder(std::string_view name);

/// The checkpoint; made by the first call.
const std::filesystem::path& TinyCheckpoint();

/// A copy of it, to be damaged.
std::filesystem::path CopyOfTinyCheckpoint(std::string_view name);

/// A copy that has the chat template, and its four tokens as the last ids.
const std::filesystem::path& ChatCheckpoint();

/// The first file of `folder` with this extension.
std::filesystem::path FileWithExtension(const std::filesystem::path& folder,
                                        std::string_view extension);

std::string ReadText(const std::filesystem::path& file);
void WriteText(const std::filesystem::path& file, std::string_view text);

}  // namespace signet::testing
