// The parser of the text form; its grammar is in step/text_format.h. Reads
// hostile text: every size is bounded before anything is allocated for it, and
// the first fault ends in one refusal with line and token. What it reads is
// printed again and compared, so that a program has one text.

#include <algorithm>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>

#include "step/program.h"
#include "step/text_format.h"
#include "step/text_values.h"

namespace signet::step {
namespace {

using namespace text_format;  // NOLINT: the words of this file

// A token as a refusal may show it: short, printable.
std::string Shown(std::string_view token) {
  constexpr size_t kMaxShown = 64;
  std::string shown(token.substr(0, kMaxShown));
  for (char& c : shown) {
    if (c < ' ' || c > '~') c = '?';
  }
  return token.size() > kMaxShown ? shown + "..." : shown;
}

// One word a call, split at single spaces.
class Line {
 public:
  explicit Line(std::string_view text) : rest_(text) {}
  std::string_view Peek() const { return rest_.substr(0, rest_.find(' ')); }
  std::string_view Next() {
    const std::string_view word = Peek();
    rest_.remove_prefix(std::min(rest_.size(), word.size() + 1));
    return word;
  }
  bool done() const { return rest_.empty(); }

 private:
  std::string_view rest_;
};

class Parser {
 public:
  Parser(std::string_view text, uint64_t epoch) : text_(text), epoch_(epoch) {}

  Result<ProgramDraft> Parse() {
    if (text_.size() > kMaxTextBytes) {
      return Reject(RejectionCode::kProgramTextInvalid, "program",
                    "the text is too long", std::to_string(text_.size()),
                    std::to_string(kMaxTextBytes));
    }
    if (ParseHeader() && ParseArenas() && ParseBuffers()) ParseSteps();
    if (!error_) CheckCanonical();
    if (error_) return tl::unexpected<Error>(Rejections(*std::move(error_)));
    return std::move(draft_);
  }

  // The visitor of Fields, one word a field.
  void Read(std::string_view name, BufferId& id) { Operand(name, id); }
  void Write(std::string_view name, BufferId& id) { Operand(name, id); }
  void Update(std::string_view name, BufferId& id) { Operand(name, id); }
  void ReadOptional(std::string_view name, std::optional<BufferId>& id) {
    OptionalOperand(name, id);
  }
  void WriteOptional(std::string_view name, std::optional<BufferId>& id) {
    OptionalOperand(name, id);
  }
  template <typename T>
  void Attribute(std::string_view name, T& value) {
    const std::optional<std::string_view> text = Field(name);
    if (text && !ParseValue(*text, value)) Fault(*text, std::string(name));
    if constexpr (std::is_same_v<T, GroupRef>) value.epoch = epoch_;
  }

 private:
  // Lines. Every one ends in '\n'.
  bool NextLine() {
    if (error_) return false;
    const size_t end = text_.find('\n', begin_);
    if (end == text_.npos) return false;
    ++line_number_;
    line_ = Line(text_.substr(begin_, end - begin_));
    begin_ = end + 1;
    return true;
  }
  bool LineStarts(std::string_view word) {
    if (error_ || begin_ >= text_.size()) return false;
    const std::string_view rest = text_.substr(begin_);
    return rest.size() > word.size() && rest.substr(0, word.size()) == word &&
           rest[word.size()] == ' ';
  }
  bool Expect(std::string_view word) {
    const std::string_view got = line_.Next();
    return got == word || Fault(got, std::string(word));
  }
  bool EndLine() { return line_.done() || Fault(line_.Peek(), "end of line"); }
  bool Begin(std::string_view word) {
    if (error_) return false;
    if (!NextLine()) return Fault("end of text", std::string(word));
    return Expect(word);
  }

  // Notes the first fault; false, for returning.
  bool Fault(std::string_view token, std::string want) {
    if (!error_) {
      error_ = Rejection{RejectionCode::kProgramTextInvalid,
                         "line " + std::to_string(line_number_), Shown(token),
                         std::move(want), "the program text cannot be read"};
    }
    return false;
  }

  // The value of the next word if it is `name=value`.
  std::optional<std::string_view> PeekField(std::string_view name) const {
    const std::string_view word = line_.Peek();
    if (word.size() <= name.size() || word[name.size()] != '=' ||
        word.substr(0, name.size()) != name) {
      return std::nullopt;
    }
    return word.substr(name.size() + 1);
  }
  std::optional<std::string_view> OptionalField(std::string_view name) {
    if (error_) return std::nullopt;
    const std::optional<std::string_view> value = PeekField(name);
    if (value) line_.Next();
    return value;
  }
  std::optional<std::string_view> Field(std::string_view name) {
    const std::optional<std::string_view> value = OptionalField(name);
    if (!value) Fault(line_.Peek(), std::string(name) + "=");
    return value;
  }

  bool ParseHeader() {
    if (!Begin(kMagic) || !Expect(kVersion) || !EndLine()) return false;
    if (!Begin("contract")) return false;
    Value(line_.Next(), draft_.contract, "32 hexadecimal digits");
    if (!EndLine() || !Begin("rank")) return false;
    Value(line_.Next(), draft_.rank, "a rank");
    if (!EndLine() || !Begin("recipe")) return false;
    ParseRecipe(line_.Next());
    if (!EndLine() || !Begin("shape")) return false;
    Value(line_.Next(), draft_.shape.kind, "decode or prefill");
    Attribute("rows", draft_.shape.rows);
    Attribute("logits", draft_.shape.logits);
    return EndLine() && !error_;
  }

  void ParseRecipe(std::string_view kind) {
    Recipe& recipe = draft_.recipe;
    if (kind == kRecipeRoutedBlock) {
      recipe.kind = Recipe::Kind::kRoutedBlock;
    } else if (kind != kRecipeModel) {
      Fault(kind, "model or routed_block");
    }
    if (const auto text = OptionalField("layer")) {
      recipe.layer.emplace(0);
      Value(*text, *recipe.layer, "a layer");
    }
    if (const auto text = OptionalField("router")) {
      Value(*text, recipe.router, "a router");
    }
  }

  bool ParseArenas() {
    while (LineStarts("arena") && Begin("arena")) {
      MemoryClass arena = MemoryClass::kIo;
      uint64_t size = 0;
      Value(line_.Next(), arena, "a memory class");
      Value(line_.Next(), size, "a number of bytes");
      if (!EndLine() || error_) return false;
      if (!draft_.arena_bytes.emplace(arena, Bytes(size)).second) {
        return Fault(Name(arena), "each arena once");
      }
    }
    return !error_;
  }

  bool ParseBuffers() {
    while (LineStarts("buffer") && Begin("buffer")) {
      if (!ParseBuffer()) return false;
    }
    if (!Begin("live")) return false;
    draft_.live = BufferNamed(line_.Next());
    return EndLine() && !error_;
  }

  bool ParseBuffer() {
    BufferDecl buffer;
    const std::string_view name = line_.Next();
    if (!IsBufferName(name)) return Fault(name, "a name of [A-Za-z0-9_.]");
    buffer.name = name;
    Attribute("kind", buffer.kind);
    Attribute("dtype", buffer.dtype);
    Attribute("shape", buffer.shape);
    Attribute("basis", buffer.basis);
    Attribute("part", buffer.part);
    Attribute("rank", buffer.rank);
    Attribute("arena", buffer.arena);
    Attribute("offset", buffer.offset_bytes);
    uint64_t size = 0;
    Attribute("bytes", size);
    buffer.size = Bytes(size);
    if (const auto text = OptionalField("weight")) {
      buffer.weight.emplace();
      Value(*text, *buffer.weight, "a weight");
    }
    if (const auto text = OptionalField("io")) {
      buffer.io.emplace(IoRole::kIds);
      Value(*text, *buffer.io, "an io role");
    }
    if (!EndLine() || error_) return false;
    const BufferId id = draft_.buffers.Push(std::move(buffer));
    return ids_.emplace(name, id).second || Fault(name, "each name once");
  }

  void ParseSteps() {
    while (!error_ && begin_ < text_.size()) {
      if (draft_.steps.size() == kMaxSteps) {
        Fault("step", "fewer steps");
        return;
      }
      if (!NextLine()) {
        Fault(text_.substr(begin_), "end of line");
        return;
      }
      ParseStep(line_.Next());
    }
  }

  void ParseStep(std::string_view kind) {
    const bool known = ParseAs(kind, static_cast<Step*>(nullptr));
    if (!known) {
      Fault(kind, "a step kind");
      return;
    }
    EndLine();
  }

  // The kind among the alternatives of the vocabulary.
  template <typename... Kinds>
  bool ParseAs(std::string_view kind, std::variant<Kinds...>*) {
    return ((kind == Kinds::kName && (ParseFields<Kinds>(), true)) || ...);
  }
  template <typename Kind>
  void ParseFields() {
    Kind step;
    Kind::Fields(step, *this);
    draft_.steps.emplace_back(std::move(step));
  }

  void Operand(std::string_view name, BufferId& id) {
    if (const auto text = Field(name)) id = BufferNamed(*text);
  }
  void OptionalOperand(std::string_view name, std::optional<BufferId>& id) {
    if (const auto text = OptionalField(name)) id = BufferNamed(*text);
  }
  BufferId BufferNamed(std::string_view text) {
    if (!text.empty() && text.front() == '%') {
      int32_t id = 0;
      if (!ParseValue(text.substr(1), id)) Fault(text, "a buffer");
      return BufferId(id);
    }
    const auto found = ids_.find(text);
    if (found != ids_.end()) return found->second;
    Fault(text, "a buffer");
    return kNoBuffer;
  }

  template <typename T>
  void Value(std::string_view text, T& value, const char* want) {
    if (!error_ && !ParseValue(text, value)) Fault(text, want);
  }

  // Whether the draft prints as it was written; else the first line that
  // differs is at fault.
  void CheckCanonical() {
    const std::string printed = ToText(draft_);
    if (printed == text_) return;
    std::string_view a = printed;
    std::string_view b = text_;
    line_number_ = 0;
    while (!error_) {
      ++line_number_;
      const std::string_view want = a.substr(0, a.find('\n'));
      const std::string_view read = b.substr(0, b.find('\n'));
      if (want != read || a.empty() || b.empty()) {
        Fault(read, Shown(want));
      }
      a.remove_prefix(std::min(a.size(), want.size() + 1));
      b.remove_prefix(std::min(b.size(), read.size() + 1));
    }
  }

  std::string_view text_;
  uint64_t epoch_;
  size_t begin_ = 0;
  int64_t line_number_ = 0;
  Line line_{{}};
  ProgramDraft draft_;
  std::unordered_map<std::string_view, BufferId> ids_;
  std::optional<Rejection> error_;
};

}  // namespace

Result<ProgramDraft> ParseProgram(std::string_view text, uint64_t epoch) {
  return Parser(text, epoch).Parse();
}

}  // namespace signet::step
