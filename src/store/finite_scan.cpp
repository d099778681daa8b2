#include "store/finite_scan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "base/check.h"

namespace signet::store {
namespace {

using model::FileRange;
using model::HeaderTensor;
using tensor::DType;

// The bits of a format's exponent: all of them set is no finite number.
struct FloatBits {
  uint32_t exponent;
  uint32_t mantissa;
  uint32_t sign;
};

FloatBits BitsOf(DType dtype) {
  switch (dtype) {
    case DType::kBF16:
      return {0x7f80, 0x007f, 0x8000};
    case DType::kF16:
      return {0x7c00, 0x03ff, 0x8000};
    case DType::kF32:
      return {0x7f800000, 0x007fffff, 0x80000000};
    case DType::kI32:
      break;
  }
  SIGNET_CHECK(false);  // no weight has it
  return {};
}

// Without a branch in the loop, so that it is as fast as the memory.
template <typename Word>
bool AnyNotFinite(const std::byte* data, size_t count, Word exponent) {
  Word found = 0;
  for (size_t i = 0; i < count; ++i) {
    Word word;
    std::memcpy(&word, data + i * sizeof word, sizeof word);
    found |= static_cast<Word>((word & exponent) == exponent);
  }
  return found != 0;
}

uint32_t WordAt(const std::byte* data, uint64_t size) {
  uint32_t word = 0;  // x86-64: the low bytes are the first
  std::memcpy(&word, data, size);
  return word;
}

std::string_view NameOf(uint32_t word, FloatBits bits) {
  if ((word & bits.mantissa) != 0) return "nan";
  return (word & bits.sign) != 0 ? "-inf" : "inf";
}

std::vector<int64_t> IndexOf(uint64_t element,
                             const std::vector<int64_t>& shape) {
  std::vector<int64_t> index(shape.size());
  for (size_t i = shape.size(); i-- > 0;) {
    const auto size = static_cast<uint64_t>(shape[i]);
    index[i] = static_cast<int64_t>(element % size);
    element /= size;
  }
  return index;
}

}  // namespace

FiniteScan::FiniteScan(const model::Checkpoint& checkpoint)
    : checkpoint_(checkpoint) {}

void FiniteScan::Check(const FileRange& range, DType dtype,
                       std::span<const std::byte> bytes) {
  const uint32_t exponent = BitsOf(dtype).exponent;
  const size_t count = bytes.size() / SizeOf(dtype);
  const bool found =
      SizeOf(dtype) == sizeof(uint32_t)
          ? AnyNotFinite<uint32_t>(bytes.data(), count, exponent)
          : AnyNotFinite<uint16_t>(bytes.data(), count,
                                   static_cast<uint16_t>(exponent));
  if (found) Note(range, dtype, bytes.data());
}

void FiniteScan::Note(const FileRange& range, DType dtype,
                      const std::byte* data) {
  const std::vector<HeaderTensor>& tensors = checkpoint_.tensors();
  const auto tensor = std::find_if(
      tensors.begin(), tensors.end(), [&](const HeaderTensor& candidate) {
        return candidate.file == range.file &&
               candidate.begin_bytes <= range.begin_bytes &&
               range.end_bytes <= candidate.end_bytes;
      });
  SIGNET_CHECK(tensor != tensors.end());
  if (!named_.insert(&*tensor).second) return;
  const uint64_t size = SizeOf(dtype);
  const FloatBits bits = BitsOf(dtype);
  const std::byte* at = data;
  while ((WordAt(at, size) & bits.exponent) != bits.exponent) at += size;
  const uint64_t offset = range.begin_bytes + static_cast<uint64_t>(at - data);
  rejections_.Add(
      RejectionCode::kWeightNotFinite,
      fmt::format("{}: {}", checkpoint_.weight_files()[range.file].path(),
                  tensor->name),
      "a weight is not a finite number",
      fmt::format("{} at [{}]", NameOf(WordAt(at, size), bits),
                  fmt::join(IndexOf((offset - tensor->begin_bytes) / size,
                                    tensor->shape),
                            ",")));
}

Result<void> FiniteScan::Finish() {
  if (rejections_.empty()) return {};
  RejectionList list;
  rejections_.FlushInto(checkpoint_.folder(), &list);
  return list.Take();
}

}  // namespace signet::store
