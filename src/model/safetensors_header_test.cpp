#include "model/safetensors_header.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "model/checkpoint_testing.h"

namespace signet::model {
namespace {

using testing::Has;
using ::testing::HasSubstr;
using testing::SafetensorsFile;
using testing::TempFolder;
using testing::Text;

Result<SafetensorsHeader> ReadBytes(const std::string& bytes) {
  const TempFolder folder;
  const auto file = OpenedFile::Open(folder.Write("w.safetensors", bytes));
  return ReadSafetensorsHeader(file.value(), FileId(3));
}

/// A file with this header text and `data_bytes` zero bytes after it.
Result<SafetensorsHeader> Read(const std::string& header,
                               size_t data_bytes = 0) {
  return ReadBytes(SafetensorsFile(header, std::string(data_bytes, '\0')));
}

std::string One(const std::string& dtype, const std::string& shape,
                const std::string& offsets) {
  return R"({"a":{"dtype":)" + dtype + R"(,"shape":)" + shape +
         R"(,"data_offsets":)" + offsets + "}}";
}

TEST(SafetensorsHeader, ReadsTensorsInFileOrder) {
  const auto header =
      Read(R"({"b":{"dtype":"F32","shape":[2],"data_offsets":[6,14]},)"
           R"("a":{"dtype":"BF16","shape":[1,3],"data_offsets":[0,6]},)"
           R"("__metadata__":{"format":"pt"}}   )",
           14);
  ASSERT_TRUE(header.has_value()) << Text(header);
  ASSERT_EQ(header->tensors.size(), 2u);
  const HeaderTensor& a = header->tensors[0];
  EXPECT_EQ(a.name, "a");
  EXPECT_EQ(a.dtype, tensor::DType::kBF16);
  EXPECT_EQ(a.shape, (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(a.file, FileId(3));
  EXPECT_EQ(a.end_bytes - a.begin_bytes, 6u);
  EXPECT_EQ(header->tensors[1].begin_bytes, a.end_bytes);
}

TEST(SafetensorsHeader, ScalarsAndEmptyTensorsAreLegal) {
  EXPECT_TRUE(Read(One(R"("F32")", "[]", "[0,4]"), 4).has_value());
  EXPECT_TRUE(Read(One(R"("F32")", "[3,0]", "[0,0]"), 0).has_value());
  EXPECT_TRUE(Read("{}").has_value());
  // A zero undoes an overflow of the dimensions before it.
  const auto zero = One(R"("F32")", "[9223372036854775807,8,0]", "[0,0]");
  EXPECT_TRUE(Read(zero).has_value());
}

TEST(SafetensorsHeader, KeepsDTypesThatWeDoNotComputeWith) {
  const auto header = Read(One(R"("F8_E4M3")", "[5]", "[0,5]"), 5);
  ASSERT_TRUE(header.has_value()) << Text(header);
  EXPECT_FALSE(header->tensors[0].dtype.has_value());
  EXPECT_EQ(header->tensors[0].dtype_name, "F8_E4M3");
}

TEST(SafetensorsHeader, RefusesFilesTooShortForTheirHeader) {
  EXPECT_TRUE(Has(ReadBytes(""), RejectionCode::kFileTruncated));
  EXPECT_TRUE(Has(ReadBytes("1234567"), RejectionCode::kFileTruncated));
  std::string cut = SafetensorsFile("{}      ", "");
  cut.pop_back();
  EXPECT_TRUE(Has(ReadBytes(cut), RejectionCode::kFileTruncated));
}

TEST(SafetensorsHeader, RefusesAHugeLength) {
  std::string file(8, '\xff');
  EXPECT_TRUE(Has(ReadBytes(file + "{}"), RejectionCode::kHeaderTooLarge));
  // 100,000,001: one more than the format allows.
  file = std::string("\x01\xe1\xf5\x05\0\0\0\0", 8);
  EXPECT_TRUE(Has(ReadBytes(file + "{}"), RejectionCode::kHeaderTooLarge));
}

TEST(SafetensorsHeader, RefusesTextThatIsNoObject) {
  for (const std::string header :
       {"", "[]", " {}", "\t{}", "\xef\xbb\xbf{}", "null", "{", "{}x", "{}{}",
        "{\"a\":}", "{\"\xff\":1}", "{'a':1}", "{\"a\":1,}"}) {
    EXPECT_TRUE(Has(Read(header), RejectionCode::kHeaderInvalid)) << header;
  }
  EXPECT_TRUE(
      Has(Read(std::string("{}\0\0", 4)), RejectionCode::kHeaderInvalid));
}

TEST(SafetensorsHeader, RefusesDeepNestingWithoutFollowingIt) {
  const std::string deep = R"({"a":)" + std::string(1'000'000, '[');
  EXPECT_TRUE(Has(Read(deep), RejectionCode::kHeaderInvalid));
}

TEST(SafetensorsHeader, RefusesDuplicateKeys) {
  const std::string a =
      R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  EXPECT_TRUE(
      Has(Read("{" + a + "," + a + "}", 1), RejectionCode::kTensorDuplicate));
  const auto inner =
      Read(R"({"a":{"dtype":"U8","dtype":"U8","shape":[1]}})", 1);
  EXPECT_TRUE(Has(inner, RejectionCode::kHeaderInvalid));
  const auto metadata = Read(R"({"__metadata__":{},"__metadata__":{}})");
  EXPECT_TRUE(Has(metadata, RejectionCode::kHeaderInvalid));
}

TEST(SafetensorsHeader, RefusesMetadataThatIsNotStrings) {
  for (const std::string value : {"1", "[]", R"({"a":1})", R"({"a":{}})"}) {
    const auto header = Read(R"({"__metadata__":)" + value + "}");
    EXPECT_TRUE(Has(header, RejectionCode::kHeaderInvalid)) << value;
  }
}

TEST(SafetensorsHeader, RefusesMalformedTensorEntries) {
  for (const std::string entry :
       {"1", "[]", "{}", R"({"dtype":"U8","shape":[1]})",
        R"({"dtype":"U8","shape":[1],"data_offsets":[0,1],"extra":1})",
        R"({"dtype":8,"shape":[1],"data_offsets":[0,1]})"}) {
    const auto header = Read(R"({"a":)" + entry + "}", 1);
    EXPECT_TRUE(Has(header, RejectionCode::kHeaderInvalid)) << entry;
    EXPECT_THAT(Text(header), HasSubstr("w.safetensors: a"));
  }
  for (const std::string name : {"", R"(a\u001b[2J)", R"(a\nb)"}) {
    const auto header = Read(
        "{\"" + name + R"(":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
        1);
    EXPECT_TRUE(Has(header, RejectionCode::kHeaderInvalid)) << name;
  }
}

TEST(SafetensorsHeader, RefusesNumbersThatAreNoSizes) {
  for (const std::string shape :
       {"1", "[-1]", "[1.0]", "[1e0]", "[\"1\"]", "[true]", "[null]",
        "[9223372036854775808]", "[18446744073709551616]", "[1e999]"}) {
    EXPECT_TRUE(Has(Read(One(R"("U8")", shape, "[0,1]"), 1),
                    RejectionCode::kHeaderInvalid))
        << shape;
  }
  for (const std::string offsets :
       {"1", "[0]", "[0,1,2]", "[-0,1]", "[0.0,1]", "[0,\"1\"]", "[0,-1]"}) {
    EXPECT_TRUE(Has(Read(One(R"("U8")", "[1]", offsets), 1),
                    RejectionCode::kHeaderInvalid))
        << offsets;
  }
}

TEST(SafetensorsHeader, RefusesUnknownDTypes) {
  const auto header = Read(One(R"("FP99")", "[1]", "[0,1]"), 1);
  EXPECT_TRUE(Has(header, RejectionCode::kDTypeUnsupported));
  EXPECT_THAT(Text(header), HasSubstr("FP99"));
}

TEST(SafetensorsHeader, RefusesRangesThatDoNotFit) {
  const auto refused = [](const std::string& dtype, const std::string& shape,
                          const std::string& offsets, size_t data_bytes) {
    return Has(Read(One("\"" + dtype + "\"", shape, offsets), data_bytes),
               RejectionCode::kTensorRangeInvalid);
  };
  EXPECT_TRUE(refused("F32", "[2]", "[0,4]", 4));  // too few bytes
  EXPECT_TRUE(refused("F32", "[1]", "[0,8]", 8));  // too many
  EXPECT_TRUE(refused("U8", "[1]", "[1,0]", 1));   // backwards
  EXPECT_TRUE(refused("F4", "[3]", "[0,1]", 1));   // half a byte
  EXPECT_TRUE(refused("U8", "[4294967296,4294967296]", "[0,0]", 0));
  EXPECT_THAT(Text(Read(One(R"("U8")", "[4294967296,4294967296]", "[0,0]"))),
              HasSubstr("overflows"));
  EXPECT_TRUE(refused("F32", "[4611686018427387905]", "[0,4]", 4));
  EXPECT_TRUE(refused("F64", "[2305843009213693953]", "[0,8]", 8));
}

TEST(SafetensorsHeader, RefusesATensorBeyondTheEnd) {
  const auto header = Read(One(R"("U8")", "[4]", "[0,4]"), 3);
  EXPECT_TRUE(Has(header, RejectionCode::kFileTruncated));
  const auto far = Read(
      One(R"("U8")", "[1]", "[18446744073709551614,18446744073709551615]"), 1);
  EXPECT_TRUE(Has(far, RejectionCode::kFileTruncated));
}

TEST(SafetensorsHeader, RefusesHolesOverlapsAndTails) {
  const auto two = [](const std::string& a, const std::string& b,
                      size_t data_bytes) {
    return Read(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":)" + a +
                    R"(},"b":{"dtype":"U8","shape":[2],"data_offsets":)" + b +
                    "}}",
                data_bytes);
  };
  EXPECT_TRUE(two("[0,2]", "[2,4]", 4).has_value());
  constexpr RejectionCode kCode = RejectionCode::kTensorRangeInvalid;
  EXPECT_TRUE(Has(two("[0,2]", "[3,5]", 5), kCode));  // a hole
  EXPECT_TRUE(Has(two("[1,3]", "[3,5]", 5), kCode));  // a hole in front
  EXPECT_TRUE(Has(two("[0,2]", "[1,3]", 3), kCode));  // an overlap
  EXPECT_TRUE(Has(two("[0,2]", "[0,2]", 2), kCode));  // the same bytes
  EXPECT_TRUE(Has(two("[0,2]", "[2,4]", 5), kCode));  // a tail
  EXPECT_TRUE(Has(Read("{}", 1), kCode));             // a tail of nothing
}

TEST(SafetensorsHeader, ReportsEveryFaultOfAFile) {
  const auto header =
      Read(R"({"a":{"dtype":"FP99","shape":[1],"data_offsets":[0,1]},)"
           R"("b":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]},)"
           R"("c":{"dtype":"U8","shape":[2],"data_offsets":[0,1]}})",
           1);
  EXPECT_TRUE(Has(header, RejectionCode::kDTypeUnsupported));
  EXPECT_TRUE(Has(header, RejectionCode::kHeaderInvalid));
  EXPECT_TRUE(Has(header, RejectionCode::kTensorRangeInvalid));
}

TEST(SafetensorsHeader, ListsTheFirstOfManyFaults) {
  std::string header = "{";
  for (int i = 0; i < 1000; ++i) {
    header += "\"t" + std::to_string(i) + "\":1,";
  }
  header.back() = '}';
  const auto malformed = Read(header);
  ASSERT_TRUE(Has(malformed, RejectionCode::kHeaderInvalid));
  EXPECT_LE(std::get<Rejections>(malformed.error()).list().size(), 21u);
  EXPECT_THAT(Text(malformed), HasSubstr("980 more"));
  // The same offsets for all of them.
  header = "{";
  for (int i = 0; i < 1000; ++i) {
    header += "\"t" + std::to_string(i) +
              R"(":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)";
  }
  header.back() = '}';
  const auto overlapping = Read(header, 1);
  ASSERT_TRUE(Has(overlapping, RejectionCode::kTensorRangeInvalid));
  EXPECT_LE(std::get<Rejections>(overlapping.error()).list().size(), 21u);
}

TEST(SafetensorsHeader, RefusesANameNoMessageCanShow) {
  const auto named = [](size_t length) {
    return Read("{\"" + std::string(length, 'n') +
                    R"(":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
                1);
  };
  EXPECT_TRUE(named(1024).has_value());
  EXPECT_TRUE(Has(named(1025), RejectionCode::kHeaderInvalid));
  EXPECT_LT(Text(named(1'000'000)).size(), 1000u);
}

// The cases of the format's own tests, attacks and fuzzing, by their names.
TEST(SafetensorsHeader, TheFormatsOwnAttacksAreRefused) {
  const std::string good = R"({"a":{"dtype":"U8","shape":[1],)";
  struct Attack {
    const char* name;
    std::string header;
    size_t data_bytes;
    RejectionCode code;
  };
  const Attack attacks[] = {
      {"incomplete buffer", One(R"("F32")", "[2]", "[0,8]"), 7,
       RejectionCode::kFileTruncated},
      {"metadata incomplete buffer", One(R"("F32")", "[1]", "[0,4]"), 5,
       RejectionCode::kTensorRangeInvalid},
      {"empty header", "", 0, RejectionCode::kHeaderInvalid},
      {"header of one byte", "{", 0, RejectionCode::kHeaderInvalid},
      {"not UTF-8", std::string("\xff\xfe"), 0, RejectionCode::kHeaderInvalid},
      {"not UTF-8 in a name", "{\"\xc3\x28\":1}", 0,
       RejectionCode::kHeaderInvalid},
      {"not JSON", "{garbage", 0, RejectionCode::kHeaderInvalid},
      {"leading whitespace", "\n " + One(R"("U8")", "[1]", "[0,1]"), 1,
       RejectionCode::kHeaderInvalid},
      {"padded with what is no space",
       One(R"("U8")", "[1]", "[0,1]") + std::string(7, '\x01'), 1,
       RejectionCode::kHeaderInvalid},
      {"duplicate keys",
       good + R"("data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],)"
              R"("data_offsets":[0,1]}})",
       1, RejectionCode::kTensorDuplicate},
      {"duplicate key behind an escape",
       good + R"("data_offsets":[0,1]},"\u0061":{"dtype":"U8","shape":[1],)"
              R"("data_offsets":[0,1]}})",
       1, RejectionCode::kTensorDuplicate},
      {"no offsets", good + "\"offsets\":[0,1]}}", 1,
       RejectionCode::kHeaderInvalid},
      {"wrong size", One(R"("F32")", "[2,2]", "[0,15]"), 15,
       RejectionCode::kTensorRangeInvalid},
      {"zero-sized of a byte", One(R"("U8")", "[0]", "[0,1]"), 1,
       RejectionCode::kTensorRangeInvalid},
      {"product that wraps to the size",
       One(R"("U8")", "[2,9223372036854775808]", "[0,0]"), 0,
       RejectionCode::kHeaderInvalid},
      {"product that wraps in bits",
       One(R"("F64")", "[288230376151711745]", "[0,8]"), 8,
       RejectionCode::kTensorRangeInvalid},
      {"misaligned sub-byte", One(R"("F6_E2M3")", "[3]", "[0,2]"), 2,
       RejectionCode::kTensorRangeInvalid},
      {"abuse: one range for two",
       R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
       R"("b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
       1, RejectionCode::kTensorRangeInvalid},
      {"abuse: a range inside another",
       R"({"a":{"dtype":"U8","shape":[9],"data_offsets":[0,9]},)"
       R"("b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})",
       9, RejectionCode::kTensorRangeInvalid},
      {"abuse: hidden bytes between tensors",
       R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
       R"("b":{"dtype":"U8","shape":[1],"data_offsets":[9,10]}})",
       10, RejectionCode::kTensorRangeInvalid},
  };
  for (const Attack& attack : attacks) {
    SCOPED_TRACE(attack.name);
    const auto header = Read(attack.header, attack.data_bytes);
    EXPECT_TRUE(Has(header, attack.code)) << Text(header);
  }
  EXPECT_TRUE(Read(One(R"("U8")", "[1]", "[0,1]") + "       ", 1).has_value());
}

TEST(SafetensorsHeader, EveryShortenedFileIsRefused) {
  const std::string whole = testing::SafetensorsOf({{"a", {3}}, {"b", {2}}});
  ASSERT_TRUE(ReadBytes(whole).has_value());
  for (size_t length = 0; length < whole.size(); ++length) {
    EXPECT_FALSE(ReadBytes(whole.substr(0, length)).has_value()) << length;
  }
}

}  // namespace
}  // namespace signet::model
