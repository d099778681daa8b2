#include "store/finite_scan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "model/checkpoint_testing.h"
#include "store/content_digest.h"

namespace signet::store {
namespace {

using model::Checkpoint;
using model::HeaderTensor;
using model::testing::Has;
using model::testing::SafetensorsOf;
using model::testing::TempFolder;
using model::testing::TestTensor;
using model::testing::Text;
using ::testing::HasSubstr;
using ::testing::Not;

/// A folder with these tensors of zeros, whose elements can be overwritten.
class Weights {
 public:
  explicit Weights(const std::vector<TestTensor>& tensors) {
    folder_.Write("config.json", "{}");
    folder_.Write("model.safetensors", SafetensorsOf(tensors));
  }

  void Put(const std::string& name, uint64_t element, uint32_t word) const {
    const Checkpoint checkpoint = Open();
    const HeaderTensor& tensor = *checkpoint.Find(name);
    const uint64_t size = SizeOf(*tensor.dtype);
    std::fstream file(folder_.path() / "model.safetensors",
                      std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(
        static_cast<std::streamoff>(tensor.begin_bytes + element * size));
    file.write(reinterpret_cast<const char*>(&word),
               static_cast<std::streamsize>(size));
  }

  Result<void> Scan() const {
    const Checkpoint checkpoint = Open();
    FiniteScan scan(checkpoint);
    for (const HeaderTensor& tensor : checkpoint.tensors()) {
      for (const model::FileRange& piece : ContentDigest::Pieces(
               {tensor.file, tensor.begin_bytes, tensor.end_bytes})) {
        std::vector<std::byte> bytes(piece.size_bytes());
        SIGNET_RETURN_IF_ERROR(checkpoint.weight_files()[piece.file].ReadAt(
            piece.begin_bytes, bytes.data(), bytes.size()));
        scan.Check(piece, *tensor.dtype, bytes);
      }
    }
    return scan.Finish();
  }

  const std::filesystem::path& path() const { return folder_.path(); }
  Checkpoint Open() const { return *Checkpoint::Open(folder_.path()); }

 private:
  TempFolder folder_;
};

struct Sample {
  const char* dtype;
  uint32_t word;
  const char* said;  // null: a finite number
};

constexpr Sample kSamples[] = {
    {"BF16", 0x7f80, "inf"},      {"BF16", 0xff80, "-inf"},
    {"BF16", 0x7fc0, "nan"},      {"BF16", 0x7f81, "nan"},
    {"BF16", 0xffff, "nan"},      {"BF16", 0x7f7f, nullptr},
    {"BF16", 0xff7f, nullptr},    {"BF16", 0x0001, nullptr},
    {"F16", 0x7c00, "inf"},       {"F16", 0xfc00, "-inf"},
    {"F16", 0x7e00, "nan"},       {"F16", 0x7bff, nullptr},
    {"F16", 0x8001, nullptr},     {"F32", 0x7f800000, "inf"},
    {"F32", 0xff800000, "-inf"},  {"F32", 0x7fc00000, "nan"},
    {"F32", 0x7f800001, "nan"},   {"F32", 0x7f7fffff, nullptr},
    {"F32", 0x807fffff, nullptr}, {"F32", 0x0000ff80, nullptr},
};

TEST(FiniteScan, TellsEveryKindOfNumberApart) {
  for (const Sample& sample : kSamples) {
    SCOPED_TRACE(std::string(sample.dtype) + " " + std::to_string(sample.word));
    const Weights weights({{"w", {2, 3}, sample.dtype}});
    EXPECT_TRUE(weights.Scan().has_value());
    weights.Put("w", 5, sample.word);
    const Result<void> scanned = weights.Scan();
    if (sample.said == nullptr) {
      EXPECT_TRUE(scanned.has_value()) << Text(scanned);
      continue;
    }
    EXPECT_TRUE(Has(scanned, RejectionCode::kWeightNotFinite));
    EXPECT_THAT(Text(scanned), HasSubstr("model.safetensors: w"));
    EXPECT_THAT(Text(scanned),
                HasSubstr(std::string("got ") + sample.said + " at [1,2]"));
  }
}

TEST(FiniteScan, NoElementOfALargeTensorIsPassedOver) {
  constexpr int64_t kColumns = 1000;
  constexpr int64_t kRows = 1100;  // of 4 B: more than four pieces
  for (const int64_t element :
       {int64_t{0}, int64_t{1}, (int64_t{1} << 18) - 1, int64_t{1} << 18,
        (int64_t{1} << 19) + 1, kRows * kColumns - 1}) {
    const Weights weights({{"w", {kRows, kColumns}, "F32"}});
    weights.Put("w", static_cast<uint64_t>(element), 0x7fc00000);
    EXPECT_THAT(Text(weights.Scan()),
                HasSubstr("nan at [" + std::to_string(element / kColumns) +
                          "," + std::to_string(element % kColumns) + "]"));
  }
}

TEST(FiniteScan, EachTensorIsNamedOnceWithItsFirst) {
  const Weights weights({{"a", {8}}, {"b", {8}}, {"c", {8}}});
  for (const uint64_t element : {3, 5, 7}) weights.Put("a", element, 0x7fc0);
  weights.Put("c", 1, 0x7f80);
  const std::string text = Text(weights.Scan());
  EXPECT_THAT(text, HasSubstr("a; got nan at [3]"));
  EXPECT_THAT(text, HasSubstr("c; got inf at [1]"));
  EXPECT_THAT(text, Not(HasSubstr("[5]")));
  EXPECT_THAT(text, Not(HasSubstr("safetensors: b")));
}

}  // namespace
}  // namespace signet::store
