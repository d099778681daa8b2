#include "engine/plan_text.h"

#include <fmt/format.h>

#include <iterator>
#include <optional>
#include <utility>

#include "base/json_text.h"
#include "engine/devices.h"

namespace signet {
namespace {

void AppendMemory(const plan::RankMemory& memory, std::string& text) {
  for (const auto& [memory_class, bytes] : memory.steady) {
    const auto load = memory.load.find(memory_class);
    fmt::format_to(
        std::back_inserter(text), "    {:<13}{:>12} steady{:>14} load\n",
        Name(memory_class), HumanBytes(bytes),
        HumanBytes(load == memory.load.end() ? Bytes(0) : load->second));
  }
  fmt::format_to(std::back_inserter(text), "    {:<13}{:>12}\n", "peak",
                 HumanBytes(memory.Peak()));
}

std::string KindOf(const model::ModelConfig& config) {
  int64_t linear = 0;
  for (const model::LayerConfig& layer : config.layers) {
    if (layer.mixer == model::MixerKind::kLinearAttention) ++linear;
  }
  std::string text = fmt::format(
      "{}, {} layers ({} linear, {} full attention), hidden {}, vocabulary {}",
      config.model_type, config.layers.size(), linear,
      static_cast<int64_t>(config.layers.size()) - linear, config.hidden,
      config.vocab);
  if (config.num_experts > 0) {
    text += fmt::format("\n  {} experts of width {}, {} a token, shared {}",
                        config.num_experts, config.expert_width, config.top_k,
                        config.shared_width);
  }
  return text;
}

// Which part of the model a rank of several has.
void AppendDims(const plan::RankDims& dims, const model::ModelConfig& config,
                std::string& text) {
  const auto out = std::back_inserter(text);
  if (!dims.first_stage || !dims.last_stage) {
    fmt::format_to(out, "    layers {} ... {} of {}\n", dims.first_layer,
                   dims.end_layer - 1, config.layers.size());
  }
  if (dims.parts > 1) {
    fmt::format_to(out,
                   "    part {} of {}: {} query heads, {} kv heads, {} linear "
                   "key and {} value heads, {} vocabulary rows\n",
                   dims.part, dims.parts, dims.heads, dims.kv_heads,
                   dims.linear_key_heads, dims.linear_value_heads, dims.vocab);
  }
}

// What all expert groups of the plan have in common can be read off one; null
// without experts.
const plan::ExpertView* AnyView(const plan::ModelPlan& plan) {
  const auto& groups = plan.manifest().expert_groups();
  for (int r = 0; r < plan.mesh().num_ranks() && !groups.empty(); ++r) {
    const auto* view = plan.experts().View(groups.front().layer, Rank(r));
    if (view != nullptr) return view;
  }
  return nullptr;
}

void AppendClasses(std::string_view key, const plan::ClassBytes& classes,
                   JsonText& json) {
  json.Object(key, [&] {
    for (const auto& [memory_class, bytes] : classes) {
      json.Field(Name(memory_class), bytes.value());
    }
  });
}

void AppendRank(const Plan::Impl& impl, Rank rank, JsonText& json) {
  const plan::ModelPlan& plan = *impl.plan;
  const topology::DeviceIdentity& device = plan.mesh().device(rank);
  const plan::RankMemory& memory =
      impl.memory.ranks[static_cast<size_t>(rank.value())];
  json.Field("rank", rank.value());
  json.Field("device", DeviceName(device));
  json.Field("architecture", device.architecture);
  AppendClasses("load", memory.load, json);
  AppendClasses("steady", memory.steady, json);
  json.Field("peak_bytes", memory.Peak().value());
  json.Field("expert_bytes", plan.experts().ExpertBytes(rank).value());
  json.Field("first_layer", plan.dims(rank).first_layer);
  json.Field("end_layer", plan.dims(rank).end_layer);
}

void AppendShape(const step::SealedProgram& program, JsonText& json) {
  json.Field("kind", Name(program.shape().kind));
  json.Field("rows", program.shape().rows);
  json.Field("logits", Name(program.shape().logits));
  json.Field("steps", program.steps().size());
  json.Field("program", program.id().Hex());
}

void AppendCollective(const plan::CollectiveRow& row, JsonText& json) {
  std::optional<int32_t> layer;
  if (row.layer) layer = row.layer->value();
  json.Field("kind", Name(row.kind));
  json.Field("axis", Name(row.axis));
  json.Field("layer", layer);
  json.Field("what", Name(row.use));
}

}  // namespace

std::string PlanText(const Plan::Impl& impl) {
  const plan::ModelPlan& plan = *impl.plan;
  const model::Manifest& manifest = plan.manifest();
  const plan::PlanOptions& options = plan.options();
  std::string text;
  const auto out = std::back_inserter(text);
  fmt::format_to(out, "model {}\n  {}\n", manifest.checkpoint().folder(),
                 KindOf(plan.config()));
  fmt::format_to(out, "  {} tensors, {} ({} bytes); {} skipped\n",
                 manifest.num_language_tensors(),
                 HumanBytes(manifest.language_bytes()),
                 manifest.language_bytes().value(), manifest.skipped().size());
  fmt::format_to(out, "mesh {}, {} rank{}{}\n", plan.mesh().spec().ToString(),
                 plan.mesh().num_ranks(),
                 plan.mesh().num_ranks() == 1 ? "" : "s",
                 plan.mesh().emulated() ? " (emulated)" : "");
  for (int r = 0; r < plan.mesh().num_ranks(); ++r) {
    const topology::DeviceIdentity& device = plan.mesh().device(Rank(r));
    fmt::format_to(out, "  rank {} on {} ({}, {})\n", r, DeviceName(device),
                   device.architecture, HumanBytes(Bytes(device.memory_bytes)));
    AppendMemory(impl.memory.ranks[static_cast<size_t>(r)], text);
    fmt::format_to(out, "    {:<13}{:>12}{}\n", "expert bytes",
                   HumanBytes(plan.experts().ExpertBytes(Rank(r))),
                   plan.experts().OwnExpertBytes(Rank(r)) == Bytes()
                       ? ", part of mapped"
                       : "");
    AppendDims(plan.dims(Rank(r)), plan.config(), text);
  }
  fmt::format_to(out, "context {}, batch {}, kv {} in pages of {} tokens\n",
                 options.context, options.batch, Name(options.kv_dtype),
                 options.page_tokens);
  text += plan.mesh().device(Rank(0)).is_gpu()
              ? "numbers: weights as stored, sums and state fp32; inputs of "
                "products bf16 in shapes of more than 8 rows\n"
              : "numbers: weights as stored, arithmetic and activations "
                "fp32\n";
  text += "shapes";
  for (const step::SealedProgram& program : impl.programs.front()) {
    fmt::format_to(out,
                   "\n  {:<8}{:>5} rows, logits of {}, {} steps, "
                   "program {}",
                   Name(program.shape().kind), program.shape().rows,
                   program.shape().logits == plan::LogitsOf::kEveryRow
                       ? "every row"
                       : "the last row",
                   program.steps().size(), program.id().Hex());
  }
  const auto& schedule = plan.schedule().rows();
  fmt::format_to(out, "\ncollectives {}\n", schedule.size());
  for (size_t i = 0; i < schedule.size(); ++i) {
    const plan::CollectiveRow& row =
        schedule[ScheduleRow(static_cast<int32_t>(i))];
    fmt::format_to(
        out, "  {:>3} {} over {}, {}{}{}\n", i, Name(row.kind), Name(row.axis),
        row.layer ? fmt::format("layer {}: ", row.layer->value()) : "",
        Name(row.use), plan.mesh().size(row.axis) == 1 ? " (identity)" : "");
  }
  if (const plan::ExpertView* view = AnyView(plan)) {
    fmt::format_to(out, "experts {}, canonical fold over {} lanes\n",
                   Name((*view)->parallelism), (*view)->lanes);
  }
  fmt::format_to(out, "contract {}\n", plan.contract_id().Hex());
  return text;
}

std::string PlanJson(const Plan::Impl& impl) {
  const plan::ModelPlan& plan = *impl.plan;
  const model::Manifest& manifest = plan.manifest();
  JsonText json;
  json.Object([&] {
    json.Field("model", manifest.checkpoint().folder());
    json.Field("model_type", plan.config().model_type);
    json.Field("tensors", manifest.num_language_tensors());
    json.Field("weight_bytes", manifest.language_bytes().value());
    json.Field("mesh", plan.mesh().spec().ToString());
    json.Field("emulated", plan.mesh().emulated());
    json.Field("context", plan.options().context);
    json.Field("batch", plan.options().batch);
    json.Field("kv", Name(plan.options().kv_dtype));
    json.Array("ranks", [&] {
      for (int r = 0; r < plan.mesh().num_ranks(); ++r) {
        json.Object([&] { AppendRank(impl, Rank(r), json); });
      }
    });
    json.Array("shapes", [&] {
      for (const step::SealedProgram& program : impl.programs.front()) {
        json.Object([&] { AppendShape(program, json); });
      }
    });
    json.Array("collectives", [&] {
      for (const plan::CollectiveRow& row : plan.schedule().rows()) {
        json.Object([&] { AppendCollective(row, json); });
      }
    });
    const plan::ExpertView* view = AnyView(plan);
    json.Field("fold_lanes", view == nullptr ? 0 : (*view)->lanes);
    json.Field("contract", plan.contract_id().Hex());
  });
  return std::move(json).Take();
}

}  // namespace signet
