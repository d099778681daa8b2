#include "model/safetensors_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <utility>

#include "base/bytes.h"
#include "model/rejection_cap.h"
#include "model/strict_json.h"
#include "model/tensor_name.h"

namespace signet::model {
namespace {

using nlohmann::json;

struct FormatDType {
  std::string_view name;
  uint64_t bits;
  std::optional<tensor::DType> dtype;  // set: one we compute with
};

constexpr std::array<FormatDType, 22> kFormatDTypes = {{
    {"BOOL", 8, {}},
    {"F4", 4, {}},
    {"F6_E2M3", 6, {}},
    {"F6_E3M2", 6, {}},
    {"U8", 8, {}},
    {"I8", 8, {}},
    {"F8_E5M2", 8, {}},
    {"F8_E4M3", 8, {}},
    {"F8_E8M0", 8, {}},
    {"F8_E4M3FNUZ", 8, {}},
    {"F8_E5M2FNUZ", 8, {}},
    {"I16", 16, {}},
    {"U16", 16, {}},
    {"F16", 16, tensor::DType::kF16},
    {"BF16", 16, tensor::DType::kBF16},
    {"I32", 32, tensor::DType::kI32},
    {"U32", 32, {}},
    {"F32", 32, tensor::DType::kF32},
    {"C64", 64, {}},
    {"F64", 64, {}},
    {"I64", 64, {}},
    {"U64", 64, {}},
}};

const FormatDType* FindDType(std::string_view name) {
  for (const FormatDType& dtype : kFormatDTypes) {
    if (dtype.name == name) return &dtype;
  }
  return nullptr;
}

/// Parses one header; collects what is wrong with it.
class HeaderParser {
 public:
  HeaderParser(const OpenedFile& file, FileId id, uint64_t data_begin_bytes)
      : path_(file.path()),
        id_(id),
        data_begin_bytes_(data_begin_bytes),
        data_bytes_(file.identity().size_bytes - data_begin_bytes) {}

  Result<std::vector<HeaderTensor>> Parse(std::string_view text) {
    if (text.empty() || text.front() != '{') {
      return Reject(RejectionCode::kHeaderInvalid, path_,
                    "the header does not begin with '{'");
    }
    tl::expected<JsonTree, JsonFault> parsed = ParseStrictJson(text);
    if (!parsed.has_value()) return RejectJson(parsed.error());
    for (const auto& [name, value] : parsed->items()) {
      if (name == "__metadata__") {
        CheckMetadata(value);
      } else if (!IsTensorName(name)) {
        Add(RejectionCode::kHeaderInvalid, Shown(name),
            "a tensor name is empty, too long or has control characters");
      } else {
        ParseTensor(name, value);
      }
    }
    if (!rejections_.empty()) return TakeRejections();
    CheckCoverage();
    if (!rejections_.empty()) return TakeRejections();
    return std::move(tensors_);
  }

 private:
  void Add(RejectionCode code, std::string_view name, std::string message,
           std::string got = {}, std::string want = {}) {
    rejections_.Add(code, fmt::format("{}: {}", path_, name),
                    std::move(message), std::move(got), std::move(want));
  }

  // A header may have half a million wrong tensors.
  tl::unexpected<Error> TakeRejections() {
    RejectionList list;
    rejections_.FlushInto(path_, &list);
    return list.Take();
  }

  tl::unexpected<Error> RejectJson(const JsonFault& fault) {
    if (!fault.duplicate_key) {
      return Reject(RejectionCode::kHeaderInvalid, path_, fault.message);
    }
    const std::string where =
        fmt::format("{}: {}", path_, Shown(*fault.duplicate_key));
    if (fault.depth == 1 && *fault.duplicate_key != "__metadata__") {
      return Reject(RejectionCode::kTensorDuplicate, where,
                    "the header names a tensor twice");
    }
    return Reject(RejectionCode::kHeaderInvalid, where, fault.message);
  }

  void CheckMetadata(const json& metadata) {
    const bool valid =
        metadata.is_object() &&
        std::all_of(metadata.begin(), metadata.end(),
                    [](const json& value) { return value.is_string(); });
    if (!valid) {
      Add(RejectionCode::kHeaderInvalid, "__metadata__",
          "the metadata is not an object of strings", Shown(metadata));
    }
  }

  void ParseTensor(const std::string& name, const json& info) {
    if (!info.is_object() || info.size() != 3 || !info.contains("dtype") ||
        !info.contains("shape") || !info.contains("data_offsets")) {
      Add(RejectionCode::kHeaderInvalid, name,
          "a tensor needs exactly dtype, shape and data_offsets", Shown(info));
      return;
    }
    const json& dtype_name = info["dtype"];
    if (!dtype_name.is_string()) {
      Add(RejectionCode::kHeaderInvalid, name, "the dtype is not a string",
          Shown(dtype_name));
      return;
    }
    HeaderTensor tensor{name, dtype_name.get<std::string>(), {}, {}, id_, 0, 0};
    const FormatDType* dtype = FindDType(tensor.dtype_name);
    if (dtype == nullptr) {
      Add(RejectionCode::kDTypeUnsupported, name,
          "the dtype is not one of the format", Shown(dtype_name));
      return;
    }
    tensor.dtype = dtype->dtype;
    const std::optional<Bytes> bits =
        ParseShape(info["shape"], dtype->bits, &tensor);
    if (!bits) return;
    if (ParseOffsets(info["data_offsets"], *bits, &tensor)) {
      tensors_.push_back(std::move(tensor));
    }
  }

  /// The tensor's size in bits.
  std::optional<Bytes> ParseShape(const json& shape, uint64_t element_bits,
                                  HeaderTensor* tensor) {
    const bool valid =
        shape.is_array() &&
        std::all_of(shape.begin(), shape.end(), [](const json& dim) {
          return dim.is_number_unsigned() && dim.get<uint64_t>() <= INT64_MAX;
        });
    if (!valid) {
      Add(RejectionCode::kHeaderInvalid, tensor->name,
          "the shape is not a list of sizes", Shown(shape));
      return std::nullopt;
    }
    Bytes bits(element_bits);  // a zero undoes an overflow before it
    for (const json& dim : shape) {
      tensor->shape.push_back(dim.get<int64_t>());
      bits = bits * dim.get<uint64_t>();
    }
    if (bits.overflowed()) {
      Add(RejectionCode::kTensorRangeInvalid, tensor->name,
          "the size of the shape overflows", Shown(shape));
      return std::nullopt;
    }
    if (bits.value() % 8 != 0) {
      Add(RejectionCode::kTensorRangeInvalid, tensor->name,
          "the elements do not fill whole bytes", Shown(shape));
      return std::nullopt;
    }
    return bits;
  }

  bool ParseOffsets(const json& offsets, Bytes bits, HeaderTensor* tensor) {
    if (!offsets.is_array() || offsets.size() != 2 ||
        !offsets[0].is_number_unsigned() || !offsets[1].is_number_unsigned()) {
      Add(RejectionCode::kHeaderInvalid, tensor->name,
          "data_offsets is not a pair of offsets", Shown(offsets));
      return false;
    }
    const uint64_t begin_bytes = offsets[0].get<uint64_t>();
    const uint64_t end_bytes = offsets[1].get<uint64_t>();
    if (begin_bytes > end_bytes) {
      Add(RejectionCode::kTensorRangeInvalid, tensor->name,
          "the range ends before it begins", Shown(offsets));
      return false;
    }
    if (end_bytes - begin_bytes != bits.value() / 8) {
      Add(RejectionCode::kTensorRangeInvalid, tensor->name,
          "the range does not have the size of dtype and shape",
          fmt::format("{} B", end_bytes - begin_bytes),
          fmt::format("{} B", bits.value() / 8));
      return false;
    }
    if (end_bytes > data_bytes_) {
      Add(RejectionCode::kFileTruncated, tensor->name,
          "the tensor ends beyond the end of the file",
          fmt::format("{} B of data", data_bytes_),
          fmt::format("{} B", end_bytes));
      return false;
    }
    tensor->begin_bytes = data_begin_bytes_ + begin_bytes;
    tensor->end_bytes = data_begin_bytes_ + end_bytes;
    return true;
  }

  void CheckCoverage() {
    std::sort(tensors_.begin(), tensors_.end(),
              [](const HeaderTensor& a, const HeaderTensor& b) {
                return std::tie(a.begin_bytes, a.end_bytes, a.name) <
                       std::tie(b.begin_bytes, b.end_bytes, b.name);
              });
    uint64_t covered_bytes = data_begin_bytes_;
    for (const HeaderTensor& tensor : tensors_) {
      if (tensor.begin_bytes != covered_bytes) {
        Add(RejectionCode::kTensorRangeInvalid, tensor.name,
            tensor.begin_bytes < covered_bytes
                ? "the range overlaps the tensor before it"
                : "bytes before the range belong to no tensor",
            fmt::format("begin {}", tensor.begin_bytes - data_begin_bytes_),
            fmt::format("begin {}", covered_bytes - data_begin_bytes_));
      }
      covered_bytes = std::max(covered_bytes, tensor.end_bytes);
    }
    if (covered_bytes != data_begin_bytes_ + data_bytes_) {
      rejections_.Add(RejectionCode::kTensorRangeInvalid, path_,
                      "bytes after the last tensor belong to none",
                      fmt::format("{} B of data", data_bytes_),
                      fmt::format("{} B", covered_bytes - data_begin_bytes_));
    }
  }

  const std::string& path_;
  FileId id_;
  uint64_t data_begin_bytes_;
  uint64_t data_bytes_;
  std::vector<HeaderTensor> tensors_;
  CappedRejections rejections_;
};

}  // namespace

std::optional<uint64_t> ElementBits(std::string_view dtype_name) {
  const FormatDType* dtype = FindDType(dtype_name);
  if (dtype == nullptr) return std::nullopt;
  return dtype->bits;
}

Result<SafetensorsHeader> ReadSafetensorsHeader(const OpenedFile& file,
                                                FileId id) {
  constexpr uint64_t kLengthBytes = 8;
  const uint64_t file_bytes = file.identity().size_bytes;
  if (file_bytes < kLengthBytes) {
    return Reject(RejectionCode::kFileTruncated, file.path(),
                  "the file is shorter than a header's length",
                  fmt::format("{} B", file_bytes));
  }
  std::array<uint8_t, kLengthBytes> raw_length;
  SIGNET_RETURN_IF_ERROR(file.ReadAt(0, raw_length.data(), raw_length.size()));
  uint64_t header_bytes = 0;
  for (size_t i = kLengthBytes; i-- > 0;) {
    header_bytes = header_bytes << 8 | raw_length[i];
  }
  if (header_bytes > kMaxHeaderBytes) {
    return Reject(RejectionCode::kHeaderTooLarge, file.path(),
                  "the header is larger than the format allows",
                  fmt::format("{} B", header_bytes),
                  fmt::format("at most {} B", kMaxHeaderBytes));
  }
  if (header_bytes > file_bytes - kLengthBytes) {
    return Reject(RejectionCode::kFileTruncated, file.path(),
                  "the header ends beyond the end of the file",
                  fmt::format("{} B", file_bytes),
                  fmt::format("{} B", kLengthBytes + header_bytes));
  }
  std::string text(header_bytes, '\0');
  SIGNET_RETURN_IF_ERROR(file.ReadAt(kLengthBytes, text.data(), text.size()));
  HeaderParser parser(file, id, kLengthBytes + header_bytes);
  SIGNET_ASSIGN_OR_RETURN(std::vector<HeaderTensor> tensors,
                          parser.Parse(text));
  return SafetensorsHeader{std::move(tensors), Digest::Of(text)};
}

}  // namespace signet::model
