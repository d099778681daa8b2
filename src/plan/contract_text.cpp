#include "plan/contract_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <iterator>

#include "plan/model_plan.h"

namespace signet::plan {

std::string ContractText(const ModelPlan& plan) {
  const model::Manifest& manifest = plan.manifest();
  const PlanOptions& options = plan.options();
  std::string text;
  const auto line = [&text]<typename... Args>(
                        fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text), format,
                   std::forward<Args>(args)...);
    text += '\n';
  };
  line("signet-contract 1");
  line("manifest {}", manifest.digest().Hex());
  line("mesh {}", plan.mesh().spec().ToString());
  line("context {} batch {} page_tokens {} kv {}", options.context,
       options.batch, options.page_tokens, Name(options.kv_dtype));
  for (const ProgramShape& shape : plan.shapes()) {
    line("shape {} rows={} logits={} inputs={}", Name(shape.kind), shape.rows,
         Name(shape.logits), Name(plan.product_input(shape)));
  }
  for (int r = 0; r < plan.mesh().num_ranks(); ++r) {
    const RankDims& dims = plan.dims(Rank(r));
    line(
        "rank {} layers={}..{} part={}/{} heads={}/{} linear_heads={}/{} "
        "dense_width={} shared_width={} vocabulary={}+{}",
        r, dims.first_layer, dims.end_layer, dims.part, dims.parts, dims.heads,
        dims.kv_heads, dims.linear_key_heads, dims.linear_value_heads,
        dims.dense_width, dims.shared_width, dims.first_vocab, dims.vocab);
  }
  for (const model::ExpertGroup& group : manifest.expert_groups()) {
    for (int r = 0; r < plan.mesh().num_ranks(); ++r) {
      const ExpertView* found = plan.experts().View(group.layer, Rank(r));
      if (found == nullptr) continue;  // of another stage
      const ExpertView& view = *found;
      line(
          "experts layer={} rank={} E={} local={} K={} H={} I={} local_I={} "
          "gate_up={}/{} down={}/{} renormalise={} {} axis={} lanes={} "
          "own_lanes={}+{} row={}",
          group.layer.value(), r, view->num_experts, view->num_local,
          view->top_k, view->hidden, view->width, view->local_width,
          Name(view->gate_up_dtype), Name(view->gate_up_basis),
          Name(view->down_dtype), Name(view->down_basis),
          view->renormalise ? 1 : 0, Name(view->parallelism), Name(view->axis),
          view->lanes, view->first_lane, view->num_lanes,
          view->collective.value());
      std::vector<int32_t> owners;
      for (const ExpertPlacement& placement : view.partition()) {
        owners.push_back(placement.owner.value());
      }
      line("owners layer={} rank={} {}", group.layer.value(), r,
           fmt::join(owners, ","));
    }
  }
  const auto& schedule = plan.schedule().rows();
  for (size_t i = 0; i < schedule.size(); ++i) {
    const CollectiveRow& row = schedule[ScheduleRow(static_cast<int32_t>(i))];
    line("collective {} {} axis={} layer={} {}", i, Name(row.kind),
         Name(row.axis), row.layer ? row.layer->value() : -1, Name(row.use));
  }
  return text;
}

}  // namespace signet::plan
