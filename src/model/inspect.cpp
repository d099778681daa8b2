#include "model/inspect.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace signet::model {
namespace {

/// What the weights of one role have in common, or the values they differ in.
struct RoleSummary {
  int64_t count = 0;
  Bytes size;
  std::set<std::string> shapes;
  std::set<std::string> dtypes;
  ShardPolicy shard = ShardPolicy::kReplicate;
  bool is_alias = false;
};

std::string Joined(const std::set<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) {
    if (!text.empty()) text += ' ';
    text += part;
  }
  return text;
}

class TextRenderer {
 public:
  explicit TextRenderer(const Manifest& manifest)
      : m_(manifest), c_(manifest.config()) {}

  std::string Render() {
    Config();
    Tensors();
    Experts();
    Skipped();
    Totals();
    return std::move(text_);
  }

 private:
  template <typename... Args>
  void Line(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), format,
                   std::forward<Args>(args)...);
    text_ += '\n';
  }

  void Config() {
    const auto count = [this](auto has) {
      return std::count_if(c_.layers.begin(), c_.layers.end(), has);
    };
    Line("model       {} ({})", c_.model_type, Name(c_.family));
    Line("digest      {}", m_.digest().Hex());
    Line("hidden      {}", c_.hidden);
    Line("vocabulary  {}{}", c_.vocab,
         c_.tied_embeddings ? ", tied embeddings" : "");
    Line("positions   {}", c_.max_position);
    Line("layers      {}: {} linear attention, {} full attention",
         c_.layers.size(), count([](const LayerConfig& l) {
           return l.mixer == MixerKind::kLinearAttention;
         }),
         count([](const LayerConfig& l) {
           return l.mixer == MixerKind::kFullAttention;
         }));
    Line("attention   {} heads, {} key-value heads of {}, {} rotated, base {}",
         c_.num_heads, c_.num_kv_heads, c_.head_dim, c_.rotary_dim,
         c_.rope_theta);
    Line("delta net   {} key heads of {}, {} value heads of {}, conv of {}",
         c_.linear_key_heads, c_.linear_key_dim, c_.linear_value_heads,
         c_.linear_value_dim, c_.conv_taps);
    if (c_.num_experts > 0) {
      Line("experts     {} of width {}, {} a token{}, shared width {}",
           c_.num_experts, c_.expert_width, c_.top_k,
           c_.renormalise ? ", renormalised" : "", c_.shared_width);
    }
    if (c_.dense_width > 0) Line("dense width {}", c_.dense_width);
  }

  void Tensors() {
    std::map<Role, RoleSummary> roles;
    for (const WeightEntry& weight : m_.weights()) {
      RoleSummary& role = roles[weight.role];
      ++role.count;
      if (!weight.alias_of) role.size += Bytes(weight.source.size_bytes());
      role.shapes.insert(ToString(weight.shape));
      role.dtypes.insert(std::string(Name(weight.dtype)));
      role.shard = weight.shard;
      role.is_alias |= weight.alias_of.has_value();
    }
    Line("\n{:<26}{:>6}  {:<18}{:<8}{:>12}  {}", "tensor", "count", "shape",
         "dtype", "bytes", "shard");
    for (const auto& [role, summary] : roles) {
      Line("{:<26}{:>6}  {:<18}{:<8}{:>12}  {}{}", Name(role), summary.count,
           Joined(summary.shapes), Joined(summary.dtypes),
           HumanBytes(summary.size), Name(summary.shard),
           summary.is_alias ? ", alias of embed_tokens" : "");
    }
  }

  void Experts() {
    if (m_.expert_groups().empty()) return;
    Line("\n{:<12}{:<12}{:>8}  {:<14}{:<14}{:<12}{:>12}", "experts", "layout",
         "experts", "gate, up", "down", "dtype", "bytes");
    for (const ExpertGroup& group : m_.expert_groups()) {
      Bytes size;
      for (const ExpertProjection* projection :
           {&group.gate, &group.up, &group.down}) {
        for (const FileRange& range : projection->sources) {
          size += Bytes(range.size_bytes());
        }
      }
      std::string dtype(Name(group.gate.dtype));
      if (group.down.dtype != group.gate.dtype) {
        dtype += fmt::format(" {}", Name(group.down.dtype));
      }
      Line("{:<12}{:<12}{:>8}  {:<14}{:<14}{:<12}{:>12}",
           fmt::format("layer {}", group.layer.value()), Name(group.layout),
           group.num_experts, ToString(group.gate.shape),
           ToString(group.down.shape), dtype, HumanBytes(size));
    }
  }

  void Skipped() {
    if (m_.skipped().empty()) return;
    std::map<std::string, std::pair<int64_t, Bytes>> rules;
    for (const SkippedTensor& skipped : m_.skipped()) {
      auto& [count, size] = rules[skipped.rule];
      ++count;
      size += skipped.size;
    }
    Line("\n{:<26}{:>6}  {:>12}", "skipped by rule", "count", "bytes");
    for (const auto& [rule, sum] : rules) {
      Line("{:<26}{:>6}  {:>12}", rule, sum.first, HumanBytes(sum.second));
    }
  }

  void Totals() {
    Line("\nlanguage model: {} tensors, {} bytes ({}), {} files",
         m_.num_language_tensors(), m_.language_bytes().value(),
         HumanBytes(m_.language_bytes()),
         m_.checkpoint().weight_files().size());
  }

  const Manifest& m_;
  const ModelConfig& c_;
  std::string text_;
};

}  // namespace

std::string InspectText(const Manifest& manifest) {
  return TextRenderer(manifest).Render();
}

}  // namespace signet::model
