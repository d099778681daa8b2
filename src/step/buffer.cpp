#include "step/buffer.h"

#include "step/names.h"

namespace signet::step {
namespace {

constexpr NameTable<PartKind, 3> kPartKinds = {{"whole", "partial", "shard"}};

constexpr NameTable<BufferKind, 7> kBufferKinds = {
    {"input", "constant", "weight", "experts", "state", "flag", "work"}};

constexpr NameTable<IoRole, 14> kIoRoles = {
    {"ids", "live", "slot", "position", "page_table", "sampling", "sampled",
     "logits", "route_ids", "route_weights", "block_input", "block_output",
     "flags", "inv_freq"}};

constexpr NameTable<ExpertPart, 2> kExpertParts = {{"gate_up", "down"}};

static_assert(kPartKinds.Name(PartKind::kShard) == "shard");
static_assert(kBufferKinds.Name(BufferKind::kWork) == "work");
static_assert(kIoRoles.Name(IoRole::kInvFreq) == "inv_freq");
static_assert(kExpertParts.Name(ExpertPart::kDown) == "down");

}  // namespace

std::string ToString(Part part) {
  std::string text(kPartKinds.Name(part.kind));
  if (part.kind == PartKind::kWhole) return text;
  text += '(';
  text += Name(part.axis);
  text += ')';
  return text;
}

std::optional<Part> ParsePart(std::string_view text) {
  const size_t open = text.find('(');
  const auto kind = kPartKinds.Parse(text.substr(0, open));
  if (!kind) return std::nullopt;
  if (*kind == PartKind::kWhole) {
    if (open != text.npos) return std::nullopt;
    return Part::Whole();
  }
  if (open == text.npos || text.back() != ')') return std::nullopt;
  const auto axis =
      topology::ParseAxis(text.substr(open + 1, text.size() - open - 2));
  if (!axis) return std::nullopt;
  return Part{*kind, *axis};
}

std::string_view Name(BufferKind kind) { return kBufferKinds.Name(kind); }

std::optional<BufferKind> ParseBufferKind(std::string_view text) {
  return kBufferKinds.Parse(text);
}

std::string_view Name(IoRole role) { return kIoRoles.Name(role); }

std::optional<IoRole> ParseIoRole(std::string_view text) {
  return kIoRoles.Parse(text);
}

std::string_view Name(ExpertPart part) { return kExpertParts.Name(part); }

std::optional<ExpertPart> ParseExpertPart(std::string_view text) {
  return kExpertParts.Parse(text);
}

bool IsBufferName(std::string_view text) {
  if (text.empty()) return false;
  for (const char c : text) {
    const bool ok = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                    (c >= '0' && c <= '9') || c == '_' || c == '.';
    if (!ok) return false;
  }
  return true;
}

}  // namespace signet::step
