#pragma once
// The header of one safetensors file: 8 bytes of length, a JSON object, then
// the tensors' bytes without holes. Hostile files are expected. Functions; any
// thread.

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/digest.h"
#include "base/id.h"
#include "base/result.h"
#include "model/checkpoint.h"

namespace signet::model {

/// The format's own limit on the JSON text.
inline constexpr uint64_t kMaxHeaderBytes = 100'000'000;

struct SafetensorsHeader {
  std::vector<HeaderTensor> tensors;  // ascending by begin_bytes
  Digest digest;                      // of the JSON text
};

/// Reads and proves the header of `file`; its tensors get `id`. Every byte
/// after the header belongs to exactly one tensor. All refusals at once, each
/// with the file and, where there is one, the tensor.
Result<SafetensorsHeader> ReadSafetensorsHeader(const OpenedFile& file,
                                                FileId id);

/// Bits of one element of a dtype of the format (`BF16`, `F8_E4M3`, ...);
/// unset for a name that is not in it.
std::optional<uint64_t> ElementBits(std::string_view dtype_name);

}  // namespace signet::model
