// A weight file. What is accepted covers the file: tensors in order, without a
// hole, each of the size of its dtype and shape.

#include "model/safetensors_header.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "fuzz/memory_file.h"
#include "fuzz/property.h"

// The length comes first in a file; here it is that of the text up to the first
// NUL, so that seeds are text. A first byte of 0 gives the file as it is.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using signet::FileId;
  std::string bytes(reinterpret_cast<const char*>(data), size);
  if (!bytes.empty() && bytes.front() == '\0') {
    bytes.erase(0, 1);
  } else {
    size_t length = std::min(bytes.find('\0'), bytes.size());
    const size_t data_begin = std::min(length + 1, bytes.size());
    const std::string text = bytes.substr(0, length);
    const std::string rest = bytes.substr(data_begin);
    bytes.clear();
    for (int i = 0; i < 8; ++i, length >>= 8) {
      bytes += static_cast<char>(length & 0xff);
    }
    bytes += text + rest;
  }
  const auto file = signet::fuzz::OpenBytes(bytes.data(), bytes.size());
  const auto header = signet::model::ReadSafetensorsHeader(file, FileId(0));
  if (!header) return 0;
  uint64_t covered = 0;
  for (const signet::model::HeaderTensor& tensor : header->tensors) {
    if (covered == 0) covered = tensor.begin_bytes;
    FUZZ_REQUIRE(tensor.begin_bytes == covered);
    FUZZ_REQUIRE(tensor.begin_bytes <= tensor.end_bytes);
    covered = tensor.end_bytes;
  }
  FUZZ_REQUIRE(header->tensors.empty() || covered == bytes.size());
  return 0;
}
