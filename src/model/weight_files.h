#pragma once
// The weight files of a folder: one model.safetensors, or the shards of an
// index, opened, with every tensor of their headers. Functions; any thread.

#include <filesystem>
#include <vector>

#include "base/digest.h"
#include "base/id.h"
#include "base/result.h"
#include "model/checkpoint.h"

namespace signet::model {

struct WeightFiles {
  IdVector<FileId, OpenedFile> files;
  std::vector<Digest> header_digests;  // one a file
  std::vector<HeaderTensor> tensors;   // ascending by name, each once
};

/// Opens the files and proves that headers and index say the same. All
/// refusals at once.
Result<WeightFiles> OpenWeightFiles(const std::filesystem::path& folder);

/// Also true for a broken link: the name is there, opening it will say why not.
bool IsThere(const std::filesystem::path& path);

}  // namespace signet::model
