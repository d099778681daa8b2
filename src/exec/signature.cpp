#include "exec/signature.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <span>
#include <type_traits>

#include "base/overload.h"
#include "step/operands.h"

namespace signet::exec {
namespace {

using step::BufferDecl;
using step::BufferKind;
using step::ExpertPart;
using step::PartKind;

std::string FieldText(const Digest& value) { return value.Hex(); }
std::string FieldText(int64_t value) { return std::to_string(value); }
std::string FieldText(std::string_view value) { return std::string(value); }

template <typename F>
void ForEachField(F&& f) {
  std::apply([&](const auto&... fields) { (f(fields), ...); },
             kSignatureFields);
}

// Appends ` name=value` for the attributes of a step that all ranks share:
// which lanes a rank has, and the group, row and size of its collective, are
// compared as such.
struct AttributePrinter {
  std::string& text;

  void Read(std::string_view, BufferId) {}
  void Write(std::string_view, BufferId) {}
  void Update(std::string_view, BufferId) {}
  void ReadOptional(std::string_view, std::optional<BufferId>) {}
  void WriteOptional(std::string_view, std::optional<BufferId>) {}
  void Attribute(std::string_view, const step::GroupRef&) {}
  void Attribute(std::string_view, ScheduleRow) {}
  void Attribute(std::string_view, Rank) {}
  template <typename T>
  void Attribute(std::string_view name, T value) {
    if (name == "first_lane") return;
    text += ' ';
    text += name;
    text += '=';
    if constexpr (std::is_enum_v<T>) {
      text += Name(value);
    } else {
      char digits[32];
      const auto [end, error] =
          std::to_chars(digits, digits + sizeof(digits), value);
      if (error == std::errc()) text.append(digits, end);
    }
  }
};

void AppendAttributes(const step::Step& step, std::string& text) {
  AttributePrinter printer{text};
  std::visit([&](const auto& s) { s.Fields(s, printer); }, step);
}

void AppendWord(std::string& text, std::string_view word) {
  if (!text.empty()) text += ' ';
  text += word;
}
void AppendPair(std::string& text, std::string_view name,
                std::string_view value) {
  AppendWord(text, name);
  text += '=';
  text += value;
}

// The steps of a block are those its collective depends on through buffers
// that are not whole, and the route of its experts.
class BlockReader {
 public:
  BlockReader(const ProgramParts& program, const plan::ModelPlan& plan)
      : program_(program),
        plan_(plan),
        makers_(program.buffers.size(), kNone),
        in_block_(program.steps.size(), 0) {}

  std::vector<SignedBlock> Run() {
    std::vector<SignedBlock> blocks;
    const std::span<const step::Step> steps = program_.steps;
    for (size_t i = 0; i < steps.size(); ++i) {
      std::visit(Overload{[&](const step::AllReduce& s) { Take(s, i, blocks); },
                          [&](const step::Gather& s) { Take(s, i, blocks); },
                          [](const auto&) {}},
                 steps[i]);
      step::ForEachOperand(
          steps[i], [&](std::string_view, BufferId id, step::Access access) {
            if (access != step::Access::kRead) makers_[id] = i;
          });
    }
    return blocks;
  }

 private:
  static constexpr size_t kNone = static_cast<size_t>(-1);

  const BufferDecl& Decl(BufferId id) const { return program_.buffers[id]; }

  template <typename S>
  void Take(const S& collective, size_t index,
            std::vector<SignedBlock>& blocks) {
    if (collective.group.ranks.size() < 2) return;
    members_.clear();
    Visit(collective.x);
    std::sort(members_.begin(), members_.end());
    SignedBlock& block = blocks.emplace_back();
    block.step = index;
    Describe(collective, block.signature);
    for (const size_t member : members_) in_block_[member] = 0;
  }

  void Visit(BufferId id) {
    if (!program_.buffers.Contains(id) || makers_[id] == kNone) return;
    const size_t maker = makers_[id];
    if (in_block_[maker] != 0) return;
    const step::Step& step = program_.steps[maker];
    in_block_[maker] = 1;
    members_.push_back(maker);
    step::ForEachOperand(step,
                         [&](std::string_view, BufferId operand, step::Access) {
                           if (Decl(operand).part.kind != PartKind::kWhole)
                             Visit(operand);
                         });
    if (const auto* combine = std::get_if<step::MoeCombine>(&step)) {
      const size_t route = makers_[combine->ids];
      if (route == kNone || in_block_[route] != 0) return;
      in_block_[route] = 1;
      members_.push_back(route);
    }
  }

  template <typename S>
  void Describe(const S& collective, BlockSignature& s) {
    const auto& out = Decl(collective.out).shape;
    s.contract = program_.contract;
    s.block = "mlp";
    const plan::CollectiveRow* row = RowOf(collective.row);
    if (row != nullptr && row->layer) s.layer = row->layer->value();
    s.hidden = out[out.num_dims() - 1];
    s.shape = fmt::format("{}, logits {}", Name(program_.shape.kind),
                          Name(program_.shape.logits));
    s.rows = program_.shape.rows;
    const topology::DeviceIdentity& device = plan_.mesh().device(program_.rank);
    s.backend = device.backend;
    s.architecture = device.architecture;
    const auto num_ranks = static_cast<int64_t>(collective.group.ranks.size());
    for (const size_t member : members_) {
      const step::Step& step = program_.steps[member];
      AppendWord(s.grammar, KindName(step));
      AppendAttributes(step, s.attributes);
      DescribeOperands(step, s);
      std::visit(
          Overload{
              [&](const step::MoeRoute& r) { DescribeRoute(r, s); },
              [&](const step::MoeScatter& m) { s.tile_rows = m.tile_rows; },
              [&](const step::MoeActivation& a) { Activates(a, step, s); },
              [&](const step::Activation& a) { Activates(a, step, s); },
              [&](const step::MoeCombine& c) { DescribeExperts(c, s); },
              [&](const step::Attention&) { s.block = "mixer"; },
              [&](const step::DeltaRule&) { s.block = "mixer"; },
              [&](const step::Projection& p) { DescribeShare(p, s); },
              [&](const step::Logits& l) {
                s.block = "lm_head";
                s.width = s.hidden;
                s.local_width = (s.width + num_ranks - 1) / num_ranks;
                static_cast<void>(l);
              },
              [](const auto&) {}},
          step);
    }
  }

  const plan::CollectiveRow* RowOf(ScheduleRow row) const {
    const auto& schedule = plan_.schedule().rows();
    return schedule.Contains(row) ? &schedule[row] : nullptr;
  }

  void DescribeOperands(const step::Step& step, BlockSignature& s) const {
    step::ForEachOperand(step,
                         [&](std::string_view name, BufferId id, step::Access) {
                           const BufferDecl& buffer = Decl(id);
                           if (buffer.kind == BufferKind::kWeight ||
                               buffer.kind == BufferKind::kExperts) {
                             const std::string_view role = RoleOf(buffer);
                             AppendPair(s.formats, role, Name(buffer.dtype));
                             AppendPair(s.bases, role, Name(buffer.basis));
                           } else {
                             AppendPair(s.dtypes, name, Name(buffer.dtype));
                           }
                         });
  }

  std::string_view RoleOf(const BufferDecl& buffer) const {
    if (buffer.kind == BufferKind::kExperts) return Name(buffer.weight->part);
    const WeightId weight = *buffer.weight->weight;
    const auto& weights = plan_.manifest().weights();
    return weights.Contains(weight) ? Name(weights[weight].role) : "unknown";
  }

  void DescribeRoute(const step::MoeRoute& route, BlockSignature& s) const {
    s.router = Name(route.router);
    s.top_k = route.top_k;
    s.renormalise = route.renormalise;
    s.num_experts = route.num_experts;
  }

  template <typename A>
  void Activates(const A&, const step::Step& step, BlockSignature& s) const {
    AppendWord(s.activation, A::kName);
    AppendAttributes(step, s.activation);
  }

  void DescribeExperts(const step::MoeCombine& combine,
                       BlockSignature& s) const {
    s.block = "routed_experts";
    s.lanes = combine.lanes;
    s.local_lanes = combine.num_lanes;
    const BufferDecl& down = Decl(combine.experts);
    if (!down.weight || !down.weight->expert_layer) return;
    s.layer = down.weight->expert_layer->value();
    s.local_experts = down.shape[0];
    s.local_width = down.shape[2];
    const plan::ExpertView* view =
        plan_.experts().View(*down.weight->expert_layer, program_.rank);
    if (view == nullptr) return;
    s.width = (*view)->width;
    s.parallelism = Name((*view)->parallelism);
    s.partition = PartitionDigest(*view);
  }

  static Digest PartitionDigest(const plan::ExpertView& view) {
    std::vector<int32_t> words;
    words.reserve(3 * view.partition().size());
    for (const plan::ExpertPlacement& placement : view.partition()) {
      words.push_back(placement.expert.value());
      words.push_back(placement.owner.value());
      words.push_back(placement.slot.value());
    }
    Digester digester;
    digester.Update(std::as_bytes(std::span(words)));
    return digester.Finish();
  }

  // A product by rows that makes the addends: its columns are shared out.
  void DescribeShare(const step::Projection& product, BlockSignature& s) const {
    const BufferDecl& weight = Decl(product.weight);
    if (Decl(product.out).part.kind != PartKind::kPartial ||
        s.block == "routed_experts" || !weight.weight ||
        !weight.weight->weight) {
      return;
    }
    const auto& weights = plan_.manifest().weights();
    if (!weights.Contains(*weight.weight->weight)) return;
    s.width = weights[*weight.weight->weight].shape[1];
    s.local_width = weight.shape[1];
  }

  const ProgramParts& program_;
  const plan::ModelPlan& plan_;
  IdVector<BufferId, size_t> makers_;  // the last step that wrote a buffer
  std::vector<uint8_t> in_block_;
  std::vector<size_t> members_;
};

}  // namespace

void CompareSignatures(const BlockSignature& want, const BlockSignature& got,
                       const std::function<std::string()>& where, Rank first,
                       model::CappedRejections& findings) {
  ForEachField([&](const auto& field) {
    if (got.*field.value == want.*field.value) return;
    findings.Add(RejectionCode::kSignatureMismatch, where(),
                 fmt::format("the {} of a block is not that of rank {}",
                             field.name, first.value()),
                 FieldText(got.*field.value), FieldText(want.*field.value));
  });
}

std::string ToText(const BlockSignature& signature) {
  std::string text;
  ForEachField([&](const auto& field) {
    text += field.name;
    text += ": ";
    text += FieldText(signature.*field.value);
    text += '\n';
  });
  return text;
}

std::vector<SignedBlock> SignaturesOf(const ProgramParts& program,
                                      const plan::ModelPlan& plan) {
  return BlockReader(program, plan).Run();
}

}  // namespace signet::exec
