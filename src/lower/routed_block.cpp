#include "lower/routed_block.h"

#include <fmt/format.h>

#include "lower/lower.h"

namespace signet::lower {
namespace {

using step::ExpertPart;
using tensor::DType;

std::string Prefix(const plan::ExpertView& view) {
  return fmt::format("l{}.moe.", view->layer.value());
}

step::MoeRoute RouteStep(ProgramBuilder& builder, const plan::ExpertView& view,
                         step::RouterKind router) {
  const std::string prefix = Prefix(view);
  const tensor::Shape shape = {builder.rows(), view->top_k};
  return {.ids = builder.Work(prefix + "ids", DType::kI32, shape),
          .weights = builder.Work(prefix + "weights", DType::kF32, shape),
          .flag = builder.Flag(),
          .router = router,
          .num_experts = view->num_experts,
          .top_k = view->top_k,
          .renormalise = view->renormalise ? 1 : 0};
}

BufferId AppendActivation(ProgramBuilder& builder, const plan::ExpertView& view,
                          BufferId gate, BufferId up, int64_t slots) {
  const BufferId act =
      builder.Work(Prefix(view) + "act", builder.product_input(),
                   {slots, view->local_width}, PartOf(view), view->down_basis);
  builder.Append(step::MoeActivation{.gate = gate, .up = up, .out = act});
  return act;
}

Expanded AppendIndexed(ProgramBuilder& builder, const plan::ExpertView& view,
                       BufferId ids, BufferId x, int64_t slots) {
  const std::string prefix = Prefix(view);
  const tensor::Shape wide = {slots, view->local_width};
  const step::Part part = PartOf(view);
  const BufferId gate = builder.Work(prefix + "gate", DType::kF32, wide, part);
  const BufferId up = builder.Work(prefix + "up", DType::kF32, wide, part);
  builder.Append(step::IndexedMoeGemv{
      .experts = builder.Experts(view, ExpertPart::kGateUp),
      .ids = ids,
      .x = x,
      .out = gate,
      .up = up,
      .which = ExpertPart::kGateUp});
  const BufferId act = AppendActivation(builder, view, gate, up, slots);
  const BufferId down = builder.Experts(view, ExpertPart::kDown);
  const BufferId d = builder.Work(prefix + "d", DType::kF32,
                                  {slots, view->hidden}, DownPartOf(view));
  builder.Append(step::IndexedMoeGemv{.experts = down,
                                      .ids = ids,
                                      .x = act,
                                      .out = d,
                                      .which = ExpertPart::kDown});
  return {down, d, std::nullopt};
}

Expanded AppendGrouped(ProgramBuilder& builder, const plan::ExpertView& view,
                       BufferId ids, BufferId x, int64_t slots) {
  const std::string prefix = Prefix(view);
  const step::Part part = PartOf(view);
  const int64_t tile_rows = FormOf(builder.plan(), builder.shape()).tile_rows;
  x = builder.Input(x);
  // An overflow sticks and is refused when the buffers are laid out.
  const auto max_rows = static_cast<int64_t>(
      plan::GroupedRowsBound(plan::MaxSlots(view.facts(), builder.rows()),
                             view->num_local, tile_rows)
          .value());
  const auto i32 = [&](const char* name, int64_t size) {
    return builder.Work(prefix + name, DType::kI32, {size}, SlotPartOf(view));
  };
  const BufferId gate_up = builder.Experts(view, ExpertPart::kGateUp);
  const step::MoeScatter scatter = {
      .experts = gate_up,
      .ids = ids,
      .counts = i32("counts", view->num_local),
      .offsets = i32("offsets", view->num_local + 1),
      .sorted_slot = i32("sorted_slot", max_rows),
      .tile_expert = i32("tile_expert", max_rows / tile_rows),
      .inverse_perm = i32("inverse_perm", slots),
      .tile_rows = tile_rows};
  builder.Append(scatter);
  const BufferId y = builder.Work(prefix + "y", DType::kF32,
                                  {max_rows, 2 * view->local_width}, part);
  builder.Append(step::GroupedMoeGemm{.experts = gate_up,
                                      .sorted_slot = scatter.sorted_slot,
                                      .tile_expert = scatter.tile_expert,
                                      .x = x,
                                      .y = y,
                                      .which = ExpertPart::kGateUp,
                                      .tile_rows = tile_rows});
  const tensor::Shape wide = {slots, view->local_width};
  const BufferId gate = builder.Work(prefix + "gate", DType::kF32, wide, part);
  const BufferId up = builder.Work(prefix + "up", DType::kF32, wide, part);
  builder.Append(step::MoeGateUpUnscatter{
      .sorted_slot = scatter.sorted_slot, .y = y, .gate = gate, .up = up});
  const BufferId act = AppendActivation(builder, view, gate, up, slots);
  const BufferId down = builder.Experts(view, ExpertPart::kDown);
  const BufferId d = builder.Work(prefix + "d", DType::kF32,
                                  {max_rows, view->hidden}, DownPartOf(view));
  builder.Append(step::GroupedMoeGemm{.experts = down,
                                      .sorted_slot = scatter.sorted_slot,
                                      .tile_expert = scatter.tile_expert,
                                      .x = act,
                                      .y = d,
                                      .which = ExpertPart::kDown,
                                      .tile_rows = tile_rows});
  return {down, d, scatter.inverse_perm};
}

}  // namespace

BlockForm FormOf(const plan::ModelPlan& plan, const plan::ProgramShape& shape) {
  const bool on_gpu = plan.mesh().device(Rank(0)).is_gpu();
  // Up to here slots seldom share an expert, and on a GPU rows are f32.
  const int64_t max_indexed = on_gpu ? 8 : 4;
  // Few rows an expert fill a small tile; the tensor cores want large ones.
  const int64_t tile_rows = !on_gpu ? 8 : shape.rows <= 256 ? 16 : 64;
  const bool indexed =
      shape.kind == plan::ShapeKind::kDecode && shape.rows <= max_indexed;
  return {indexed ? Grammar::kIndexed : Grammar::kGrouped, tile_rows};
}

RouteBuffers AppendSoftmaxRoute(ProgramBuilder& builder,
                                const plan::ExpertView& view, BufferId scores) {
  step::MoeRoute route =
      RouteStep(builder, view, step::RouterKind::kSoftmaxTopK);
  route.scores = scores;
  builder.Append(route);
  return {route.ids, route.weights};
}

Expanded AppendExpanded(ProgramBuilder& builder, const plan::ExpertView& view,
                        const RouteBuffers& route, BufferId x) {
  const int64_t slots = builder.rows() * view->top_k;
  return FormOf(builder.plan(), builder.shape()).grammar == Grammar::kIndexed
             ? AppendIndexed(builder, view, route.ids, x, slots)
             : AppendGrouped(builder, view, route.ids, x, slots);
}

BufferId AppendCombine(ProgramBuilder& builder, const plan::ExpertView& view,
                       const RouteBuffers& route, const Expanded& expanded) {
  const BufferId partial = builder.Work(Prefix(view) + "partial", view->hidden,
                                        step::Part::Partial(view->axis));
  builder.Append(step::MoeCombine{.experts = expanded.experts_down,
                                  .d = expanded.d,
                                  .ids = route.ids,
                                  .weights = route.weights,
                                  .inverse_perm = expanded.inverse_perm,
                                  .out = partial,
                                  .lanes = view->lanes,
                                  .first_lane = view->first_lane,
                                  .num_lanes = view->num_lanes});
  return partial;
}

Result<step::ProgramDraft> RoutedBlock(const plan::ModelPlan& plan,
                                       const plan::ExpertView& view,
                                       const plan::ProgramShape& shape,
                                       step::RouterKind router) {
  ProgramBuilder builder(plan, shape, view->rank,
                         {.kind = step::Recipe::Kind::kRoutedBlock,
                          .layer = view->layer,
                          .router = router});
  using step::BufferKind;
  using step::IoRole;
  const tensor::Shape rows_by_hidden = {shape.rows, view->hidden};
  const BufferId x = builder.Io(IoRole::kBlockInput, BufferKind::kInput,
                                DType::kF32, rows_by_hidden);
  RouteBuffers buffers{step::kNoBuffer, step::kNoBuffer};
  if (router == step::RouterKind::kSoftmaxTopK) {
    const BufferId scores = builder.Project(Prefix(view) + "scores", x,
                                            model::Role::kRouter, view->layer);
    buffers = AppendSoftmaxRoute(builder, view, scores);
  } else {
    const tensor::Shape routes = {shape.rows, view->top_k};
    step::MoeRoute route = RouteStep(builder, view, router);
    route.in_ids =
        builder.Io(IoRole::kRouteIds, BufferKind::kInput, DType::kI32, routes);
    route.in_weights = builder.Io(IoRole::kRouteWeights, BufferKind::kInput,
                                  DType::kF32, routes);
    builder.Append(route);
    buffers = {route.ids, route.weights};
  }
  const BufferId out = builder.Io(IoRole::kBlockOutput, BufferKind::kWork,
                                  DType::kF32, rows_by_hidden);
  const Expanded expanded = AppendExpanded(builder, view, buffers, x);
  builder.Append(
      step::AllReduce{.x = AppendCombine(builder, view, buffers, expanded),
                      .out = out,
                      .group = builder.Group(view->axis),
                      .row = view->collective,
                      .elements = builder.rows() * view->hidden});
  return std::move(builder).Finish();
}

}  // namespace signet::lower
