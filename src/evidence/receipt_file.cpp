// Receipts as files: hostile bytes in, the whole file or none of it out.

#include <fmt/format.h>

#include <limits>
#include <utility>

#include "evidence/json_file.h"
#include "evidence/receipt.h"
#include "model/checkpoint.h"
#include "model/strict_json.h"

namespace signet::evidence {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr uint64_t kMaxReceiptBytes = uint64_t{64} << 20;
constexpr size_t kMaxTextBytes = 1 << 20;  // a prompt may be long
constexpr size_t kMaxSides = 256;
constexpr size_t kMaxDevices = 4096;
constexpr int64_t kMaxNumber = int64_t{1} << 40;

// Reads fields; after the first fault it only gives defaults.
class Reader {
 public:
  explicit Reader(std::string where) : where_(std::move(where)) {}

  bool failed() const { return fault_.has_value(); }
  tl::unexpected<Error> Take() const {
    return Reject(RejectionCode::kJsonInvalid, where_, *fault_);
  }
  void Fail(std::string message) {
    if (!fault_) fault_ = std::move(message);
  }

  /// A member of an object; null if there is none.
  const json& At(const json& object, const char* key) {
    static const json kNull;
    if (!object.is_object() || !object.contains(key)) {
      Fail(fmt::format("the receipt has no {}", key));
      return kNull;
    }
    return object.at(key);
  }
  std::string Text(const json& object, const char* key) {
    const json& value = At(object, key);
    if (!value.is_string() ||
        value.get_ref<const std::string&>().size() > kMaxTextBytes) {
      Fail(fmt::format("{} is not a text", key));
      return {};
    }
    return value.get<std::string>();
  }
  /// A text that is printed: no control character.
  std::string Line(const json& object, const char* key) {
    std::string text = Text(object, key);
    for (const char c : text) {
      const auto byte = static_cast<unsigned char>(c);
      if (byte < ' ' || byte == 0x7f) {
        Fail(fmt::format("{} has a control character", key));
        return {};
      }
    }
    return text;
  }
  std::string Hex(const json& object, const char* key, size_t digits) {
    std::string text = Text(object, key);
    if (text.size() == digits &&
        text.find_first_not_of("0123456789abcdef") == std::string::npos) {
      return text;
    }
    Fail(fmt::format("{} is not {} hexadecimal digits", key, digits));
    return {};
  }
  bool Bool(const json& object, const char* key) {
    const json& value = At(object, key);
    if (value.is_boolean()) return value.get<bool>();
    Fail(fmt::format("{} is not true or false", key));
    return false;
  }
  int64_t Number(const json& object, const char* key, int64_t least,
                 int64_t most = kMaxNumber) {
    return NumberOf(At(object, key), key, least, most);
  }
  std::vector<int64_t> Numbers(const json& object, const char* key,
                               int64_t least, int64_t most) {
    const json& list = At(object, key);
    std::vector<int64_t> numbers;
    if (!list.is_array()) {
      Fail(fmt::format("{} is not a list", key));
      return numbers;
    }
    for (const json& value : list) {
      numbers.push_back(NumberOf(value, key, least, most));
    }
    return numbers;
  }

 private:
  int64_t NumberOf(const json& value, const char* key, int64_t least,
                   int64_t most) {
    // Unsigned is what the parser makes of every number that is not negative.
    if (value.is_number_unsigned() &&
        value.get<uint64_t>() <= static_cast<uint64_t>(most) &&
        value.get<int64_t>() >= least) {
      return value.get<int64_t>();
    }
    Fail(fmt::format("{} is not a whole number, {} to {}", key, least, most));
    return least;
  }

  std::string where_;
  std::optional<std::string> fault_;
};

PlanOptions ReadOptions(Reader& reader, const json& object) {
  PlanOptions options;
  options.devices = reader.Line(object, "devices");
  options.context = reader.Number(object, "context", 1);
  options.batch = reader.Number(object, "batch", 1);
  options.page_tokens = reader.Number(object, "page_tokens", 1);
  options.decode_buckets =
      reader.Numbers(object, "decode_buckets", 1, kMaxNumber);
  options.prefill_chunks =
      reader.Numbers(object, "prefill_chunks", 1, kMaxNumber);
  const std::string kv = reader.Line(object, "kv");
  if (kv == "f32") {
    options.kv = KvType::kF32;
  } else if (kv == "bf16") {
    options.kv = KvType::kBF16;
  } else if (kv != "default") {
    reader.Fail("kv is not default, f32 or bf16");
  }
  const std::string experts = reader.Line(object, "experts");
  if (experts == "owned") {
    options.tp_experts = TpExperts::kOwned;
  } else if (experts != "split") {
    reader.Fail("experts is not split or owned");
  }
  return options;
}

std::vector<topology::DeviceIdentity> ReadDevices(Reader& reader,
                                                  const json& list) {
  std::vector<topology::DeviceIdentity> devices;
  if (!list.is_array() || list.empty() || list.size() > kMaxDevices) {
    reader.Fail(
        fmt::format("binding.devices is not a list of 1 to {}", kMaxDevices));
    return devices;
  }
  for (const json& device : list) {
    topology::DeviceIdentity& read = devices.emplace_back();
    const std::string name = reader.Line(device, "name");
    read.backend = name.substr(0, name.find(':'));
    if (read.backend != "cpu" && read.backend != "gpu") {
      reader.Fail("the name of a device is not cpu:N or gpu:N");
    }
    read.uuid = reader.Line(device, "identity");
    read.pci = reader.Line(device, "pci");
    read.architecture = reader.Line(device, "architecture");
  }
  return devices;
}

std::vector<Receipt::Side> ReadSides(Reader& reader, const json& list,
                                     int64_t positions) {
  std::vector<Receipt::Side> sides;
  if (!list.is_array() || list.empty() || list.size() > kMaxSides) {
    reader.Fail(fmt::format("sides is not a list of 1 to {}", kMaxSides));
    return sides;
  }
  for (const json& side : list) {
    Receipt::Side& read = sides.emplace_back();
    read.request.mesh = reader.Line(side, "mesh");
    read.request.devices = reader.Line(side, "devices");
    reader.Bool(side, "emulated");
    reader.Bool(side, "holds");
    read.contract = reader.Hex(reader.At(side, "binding"), "contract", 32);
    read.devices =
        ReadDevices(reader, reader.At(reader.At(side, "binding"), "devices"));
    const json& digests = reader.At(side, "digests");
    if (!digests.is_array() ||
        static_cast<int64_t>(digests.size()) != positions) {
      reader.Fail("digests is not one a position");
    }
  }
  return sides;
}

}  // namespace

Result<Receipt> ParseReceipt(std::string_view text, const std::string& where) {
  const auto parsed = model::ParseStrictJson(text);
  if (!parsed) {
    return Reject(RejectionCode::kJsonInvalid, where, parsed.error().message);
  }
  Reader reader(where);
  const json& object = *parsed;
  reader.Number(object, "signet_receipt", 1, 1);
  Receipt receipt;
  receipt.execution_code = reader.Hex(object, "execution_code", 64);
  receipt.holds = reader.Bool(object, "holds");
  receipt.model = reader.Line(object, "model");
  const json& digests = reader.At(object, "model_digest");
  receipt.headers = reader.Hex(digests, "headers", 32);
  receipt.tokenizer = reader.Hex(digests, "tokenizer", 32);
  if (!reader.At(digests, "content").is_null()) {
    receipt.content = reader.Hex(digests, "content", 32);
  }
  if (!reader.At(object, "prompt_text").is_null()) {
    receipt.prompt_text = reader.Text(object, "prompt_text");
  }
  for (const int64_t id : reader.Numbers(object, "prompt", 0,
                                         std::numeric_limits<int32_t>::max())) {
    receipt.prompt.push_back(static_cast<int32_t>(id));
  }
  receipt.positions = reader.Number(object, "positions", 1);
  if (receipt.prompt.empty() ||
      static_cast<int64_t>(receipt.prompt.size()) > receipt.positions) {
    reader.Fail("prompt is not 1 id to one a position");
  }
  receipt.options = ReadOptions(reader, reader.At(object, "options"));
  receipt.sides =
      ReadSides(reader, reader.At(object, "sides"), receipt.positions);
  if (reader.failed()) return reader.Take();
  return receipt;
}

Result<Receipt> ReadReceipt(const fs::path& file) {
  SIGNET_ASSIGN_OR_RETURN(const model::OpenedFile opened,
                          model::OpenedFile::Open(file));
  SIGNET_ASSIGN_OR_RETURN(const std::string text,
                          opened.ReadAll(kMaxReceiptBytes));
  return ParseReceipt(text, file.string());
}

Result<void> CheckReceiptPlace(const fs::path& file) {
  SIGNET_ASSIGN_OR_RETURN(const bool taken, IsTaken(file, "receipt"));
  if (!taken) return {};
  const Result<Receipt> there = ReadReceipt(file);
  if (there) return {};
  return Reject(RejectionCode::kJsonInvalid, file.string(),
                "only a receipt is written over, and this file is none",
                std::holds_alternative<Rejections>(there.error())
                    ? std::get<Rejections>(there.error()).list()[0].message
                    : Describe(there.error()),
                "a new file, or a receipt");
}

Result<void> WriteReceipt(const nlohmann::ordered_json& receipt,
                          const fs::path& file) {
  SIGNET_RETURN_IF_ERROR(CheckReceiptPlace(file));
  return WriteJsonFile(receipt, file, "receipt");
}

}  // namespace signet::evidence
