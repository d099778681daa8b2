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
    fmt::format_to(out, "    {:<13}{:>12}, part of mapped\n", "expert bytes",
                   HumanBytes(plan.experts().ExpertBytes(Rank(r))));
  }
  fmt::format_to(out, "context {}, batch {}, kv {} in pages of {} tokens\n",
                 options.context, options.batch, Name(options.kv_dtype),
                 options.page_tokens);
  text += "numbers: weights as stored, arithmetic and activations fp32\n";
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
  const auto& schedule = manifest.schedule();
  fmt::format_to(out, "\ncollectives {}\n", schedule.size());
  for (size_t i = 0; i < schedule.size(); ++i) {
    const model::CollectiveRow& row =
        schedule[ScheduleRow(static_cast<int32_t>(i))];
    fmt::format_to(out, "  {:>3} {} over {}, layer {}: {}{}\n", i,
                   Name(row.kind), Name(row.axis),
                   row.layer ? row.layer->value() : -1, row.what,
                   plan.mesh().size(row.axis) == 1 ? " (identity)" : "");
  }
  if (!manifest.expert_groups().empty()) {
    const LayerId first = manifest.expert_groups().front().layer;
    const plan::ExpertView& view = *plan.experts().View(first, Rank(0));
    fmt::format_to(out, "experts {}, canonical fold over {} lanes\n",
                   Name(view->parallelism), view->lanes);
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
         {"expert_bytes", plan.experts().ExpertBytes(Rank(r)).value()}});
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
  for (const model::CollectiveRow& row : manifest.schedule()) {
    collectives.push_back(
        {{"kind", Name(row.kind)},
         {"axis", Name(row.axis)},
         {"layer", row.layer ? Json(row.layer->value()) : Json(nullptr)},
         {"what", row.what}});
  }
  int64_t lanes = 0;
  if (!manifest.expert_groups().empty()) {
    lanes = plan.experts()
                .View(manifest.expert_groups().front().layer, Rank(0))
                ->facts()
                .lanes;
  }
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
