#include "engine/plan_text.h"

#include <fmt/format.h>

#include <iterator>
#include <nlohmann/json.hpp>

#include "engine/devices.h"

namespace signet {
namespace {

using Json = nlohmann::ordered_json;

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

Json ClassJson(const plan::ClassBytes& classes) {
  Json object = Json::object();
  for (const auto& [memory_class, bytes] : classes) {
    object[std::string(Name(memory_class))] = bytes.value();
  }
  return object;
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
  Json ranks = Json::array();
  for (int r = 0; r < plan.mesh().num_ranks(); ++r) {
    const plan::RankMemory& memory = impl.memory.ranks[static_cast<size_t>(r)];
    ranks.push_back(
        {{"rank", r},
         {"device", DeviceName(plan.mesh().device(Rank(r)))},
         {"architecture", plan.mesh().device(Rank(r)).architecture},
         {"load", ClassJson(memory.load)},
         {"steady", ClassJson(memory.steady)},
         {"peak_bytes", memory.Peak().value()},
         {"expert_bytes", plan.experts().ExpertBytes(Rank(r)).value()},
         {"first_layer", plan.dims(Rank(r)).first_layer},
         {"end_layer", plan.dims(Rank(r)).end_layer}});
  }
  Json shapes = Json::array();
  for (const step::SealedProgram& program : impl.programs.front()) {
    shapes.push_back({{"kind", Name(program.shape().kind)},
                      {"rows", program.shape().rows},
                      {"logits", Name(program.shape().logits)},
                      {"steps", program.steps().size()},
                      {"program", program.id().Hex()}});
  }
  Json collectives = Json::array();
  for (const plan::CollectiveRow& row : plan.schedule().rows()) {
    collectives.push_back(
        {{"kind", Name(row.kind)},
         {"axis", Name(row.axis)},
         {"layer", row.layer ? Json(row.layer->value()) : Json(nullptr)},
         {"what", Name(row.use)}});
  }
  const plan::ExpertView* view = AnyView(plan);
  const int64_t lanes = view == nullptr ? 0 : (*view)->lanes;
  const Json object = {{"model", manifest.checkpoint().folder()},
                       {"model_type", plan.config().model_type},
                       {"tensors", manifest.num_language_tensors()},
                       {"weight_bytes", manifest.language_bytes().value()},
                       {"mesh", plan.mesh().spec().ToString()},
                       {"emulated", plan.mesh().emulated()},
                       {"context", plan.options().context},
                       {"batch", plan.options().batch},
                       {"kv", Name(plan.options().kv_dtype)},
                       {"ranks", std::move(ranks)},
                       {"shapes", std::move(shapes)},
                       {"collectives", std::move(collectives)},
                       {"fold_lanes", lanes},
                       {"contract", plan.contract_id().Hex()}};
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace signet
