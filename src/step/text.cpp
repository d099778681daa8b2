// The printer of the text form; its grammar is in step/text_format.h.

#include <charconv>
#include <system_error>

#include "step/program.h"
#include "step/text_format.h"

namespace signet::step {
namespace {

using namespace text_format;  // NOLINT: the words of this file

class Printer {
 public:
  explicit Printer(const ProgramDraft& draft) : draft_(draft) {}

  std::string Print() {
    text_.reserve(512 + 192 * draft_.buffers.size() +
                  160 * draft_.steps.size());
    PrintHeader();
    for (const BufferDecl& buffer : draft_.buffers) PrintBuffer(buffer);
    Append("live ");
    AppendBuffer(draft_.live);
    text_ += '\n';
    for (const Step& step : draft_.steps) PrintStep(step);
    return std::move(text_);
  }

  // The visitor of Fields.
  void Read(std::string_view name, BufferId id) { Operand(name, id); }
  void Write(std::string_view name, BufferId id) { Operand(name, id); }
  void Update(std::string_view name, BufferId id) { Operand(name, id); }
  void ReadOptional(std::string_view name, std::optional<BufferId> id) {
    if (id) Operand(name, *id);
  }
  void WriteOptional(std::string_view name, std::optional<BufferId> id) {
    if (id) Operand(name, *id);
  }
  template <typename T>
  void Attribute(std::string_view name, const T& value) {
    Key(name);
    AppendValue(value);
  }

 private:
  void PrintHeader() {
    Append(kMagic);
    text_ += ' ';
    Append(kVersion);
    Append("\ncontract ");
    Append(draft_.contract.Hex());
    Append("\nrank ");
    AppendNumber(draft_.rank.value());
    Append("\nrecipe ");
    const Recipe& recipe = draft_.recipe;
    Append(recipe.kind == Recipe::Kind::kModel ? kRecipeModel
                                               : kRecipeRoutedBlock);
    if (recipe.layer) Attribute("layer", int64_t{recipe.layer->value()});
    if (recipe.kind == Recipe::Kind::kRoutedBlock ||
        recipe.router != RouterKind::kSoftmaxTopK) {
      Attribute("router", recipe.router);
    }
    Append("\nshape ");
    Append(Name(draft_.shape.kind));
    Attribute("rows", draft_.shape.rows);
    Key("logits");
    Append(Name(draft_.shape.logits));
    text_ += '\n';
    for (const auto& [arena, size] : draft_.arena_bytes) {
      Append("arena ");
      Append(Name(arena));
      text_ += ' ';
      AppendNumber(size.value());
      text_ += '\n';
    }
  }

  void PrintBuffer(const BufferDecl& buffer) {
    Append("buffer ");
    Append(buffer.name);
    Key("kind");
    Append(Name(buffer.kind));
    Key("dtype");
    Append(Name(buffer.dtype));
    Key("shape");
    text_ += '[';
    for (int i = 0; i < buffer.shape.num_dims(); ++i) {
      if (i > 0) text_ += ',';
      AppendNumber(buffer.shape[i]);
    }
    text_ += ']';
    Key("basis");
    Append(Name(buffer.basis));
    Key("part");
    Append(ToString(buffer.part));
    Key("rank");
    AppendNumber(buffer.rank.value());
    Key("arena");
    Append(Name(buffer.arena));
    Key("offset");
    AppendNumber(buffer.offset_bytes);
    Key("bytes");
    AppendNumber(buffer.size.value());
    if (buffer.weight) PrintWeight(*buffer.weight);
    if (buffer.io) {
      Key("io");
      Append(Name(*buffer.io));
    }
    text_ += '\n';
  }

  // `weight=w12`, or `weight=e3:gate_up` for the experts of layer 3.
  void PrintWeight(const WeightRef& ref) {
    Key("weight");
    if (ref.weight) {
      text_ += 'w';
      AppendNumber(ref.weight->value());
    }
    if (ref.expert_layer) {
      text_ += 'e';
      AppendNumber(ref.expert_layer->value());
    }
    if (ref.expert_layer || ref.part != ExpertPart::kGateUp) {
      text_ += ':';
      Append(Name(ref.part));
    }
  }

  void PrintStep(const Step& step) {
    std::visit(
        [this](const auto& s) {
          using S = std::remove_cvref_t<decltype(s)>;
          Append(S::kName);
          S::Fields(s, *this);
        },
        step);
    text_ += '\n';
  }

  void Key(std::string_view name) {
    text_ += ' ';
    Append(name);
    text_ += '=';
  }
  void Operand(std::string_view name, BufferId id) {
    Key(name);
    AppendBuffer(id);
  }
  void AppendBuffer(BufferId id) {
    if (draft_.buffers.Contains(id)) {
      Append(draft_.buffers[id].name);
      return;
    }
    text_ += '%';
    AppendNumber(id.value());
  }

  void AppendValue(int64_t value) { AppendNumber(value); }
  void AppendValue(float value) { AppendNumber(value); }
  void AppendValue(double value) { AppendNumber(value); }
  void AppendValue(Rank value) { AppendNumber(value.value()); }
  void AppendValue(ScheduleRow value) { AppendNumber(value.value()); }
  void AppendValue(RouterKind value) { Append(Name(value)); }
  void AppendValue(DeltaForm value) { Append(Name(value)); }
  void AppendValue(LogitRows value) { Append(Name(value)); }
  void AppendValue(ExpertPart value) { Append(Name(value)); }
  void AppendValue(const GroupRef& group) {
    Append(Name(group.axis));
    char separator = ':';
    for (const Rank rank : group.ranks) {
      text_ += separator;
      AppendNumber(rank.value());
      separator = ',';
    }
    if (group.ranks.empty()) text_ += separator;
  }

  void Append(std::string_view text) { text_ += text; }
  template <typename T>
  void AppendNumber(T value) {
    char digits[32];
    const auto [end, error] =
        std::to_chars(digits, digits + sizeof(digits), value);
    if (error == std::errc()) text_.append(digits, end);
  }

  const ProgramDraft& draft_;
  std::string text_;
};

}  // namespace

std::string ToText(const ProgramDraft& draft) { return Printer(draft).Print(); }

}  // namespace signet::step
