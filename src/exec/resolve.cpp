// Each sealed step as a launch: views from buffer declarations, numbers from
// the step's attributes. Nothing is checked here; the program is proven.

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/check.h"
#include "exec/binder.h"

namespace signet::exec {
namespace {

int MemberOf(const step::GroupRef& group, Rank rank) {
  const auto found = std::find(group.ranks.begin(), group.ranks.end(), rank);
  SIGNET_CHECK(found != group.ranks.end());
  return static_cast<int>(found - group.ranks.begin());
}

// The rank's end of the step's group.
collective::Communicator* Meeting(collective::Communicator* end,
                                  const step::GroupRef& group) {
  SIGNET_CHECK(end != nullptr &&
               static_cast<size_t>(end->members()) == group.ranks.size());
  return end;
}

}  // namespace

using step::BufferDecl;

backend::WeightView Binder::Matrix(BufferId id) const {
  const BufferDecl& buffer = Decl(id);
  return {.data = weights_->Data(*buffer.weight->weight, program_.rank()),
          .dtype = buffer.dtype,
          .rows = buffer.shape[0],
          .cols = buffer.shape[1]};
}

backend::InputView Binder::Input(BufferId id) const {
  return {.data = Raw(id), .dtype = Decl(id).dtype};
}

backend::VectorView Binder::Vector(BufferId id) const {
  const BufferDecl& buffer = Decl(id);
  return {.data = weights_->Data(*buffer.weight->weight, program_.rank()),
          .dtype = buffer.dtype,
          .size = buffer.shape[0]};
}

const plan::ExpertView& Binder::View(BufferId experts) const {
  const plan::ExpertView* view = plan_.experts().View(
      *Decl(experts).weight->expert_layer, program_.rank());
  SIGNET_CHECK(view != nullptr);
  return *view;
}

backend::ExpertTableView Binder::Experts(BufferId id) const {
  const plan::ExpertView& view = View(id);
  const store::WeightVersion::ExpertTable* table =
      weights_->Experts(view->layer, program_.rank());
  SIGNET_CHECK(table != nullptr);
  return {.experts = table->committed.experts,
          .global_to_local = table->committed.global_to_local,
          .num_experts = view->num_experts,
          .num_local = view->num_local,
          .hidden = view->hidden,
          .width = view->local_width,
          .gate_dtype = view->gate_up_dtype,
          .up_dtype = view->gate_up_dtype,
          .down_dtype = view->down_dtype,
          .layout = table->committed.layout};
}

backend::KvView Binder::Cache(BufferId k, BufferId v,
                              BufferId page_table) const {
  const tensor::Shape& shape = Decl(k).shape;
  return {.k = Raw(k),
          .v = Raw(v),
          .dtype = Decl(k).dtype,
          .page_table = Address<int32_t>(page_table),
          .pages_per_slot = Decl(page_table).shape[1],
          .page_size = shape[1],
          .num_kv_heads = shape[2],
          .head_dim = shape[3]};
}

backend::RowForm Binder::Form() const {
  return program_.shape().kind == plan::ShapeKind::kDecode
             ? backend::RowForm::kSequenceEach
             : backend::RowForm::kOneSequence;
}

Launch Binder::Resolve(const step::Embed& s) const {
  return backend::EmbedArgs{.rows = rows_,
                            .ids = Address<int32_t>(s.ids),
                            .table = Matrix(s.table),
                            .out = Address<float>(s.out)};
}

Launch Binder::Resolve(const step::Norm& s) const {
  return backend::NormArgs{.rows = rows_,
                           .x = Address<float>(s.x),
                           .weight = Vector(s.weight),
                           .offset = s.offset,
                           .eps = s.eps,
                           .width = Decl(s.x).shape[1],
                           .out = Address<float>(s.out)};
}

Launch Binder::Resolve(const step::Round& s) const {
  const tensor::Shape& shape = Decl(s.x).shape;
  return backend::RoundArgs{.rows = rows_,
                            .multiple = shape[0] / rows_.capacity,
                            .width = shape[1],
                            .x = Address<float>(s.x),
                            .out = Raw(s.out)};
}

backend::ActivationArgs Binder::SiluTimes(BufferId gate, BufferId up,
                                          BufferId out) const {
  const tensor::Shape& shape = Decl(gate).shape;
  const bool rounded = Decl(out).dtype == tensor::DType::kBF16;
  return {.rows = rows_,
          .multiple = shape[0] / rows_.capacity,
          .width = shape[1],
          .gate = Address<float>(gate),
          .up = Address<float>(up),
          .out = rounded ? nullptr : Address<float>(out),
          .rounded = rounded ? Raw(out) : nullptr};
}

Launch Binder::Resolve(const step::Projection& s) const {
  return backend::ProjectionArgs{.rows = rows_,
                                 .x = Input(s.x),
                                 .weight = Matrix(s.weight),
                                 .out = Address<float>(s.out)};
}

Launch Binder::Resolve(const step::QkNormRope& s) const {
  return backend::QkNormRopeArgs{.rows = rows_,
                                 .heads = s.heads,
                                 .kv_heads = s.kv_heads,
                                 .head_dim = s.head_dim,
                                 .rotary_dim = s.rotary_dim,
                                 .inv_freq = Address<float>(s.inv_freq),
                                 .q_gate = Address<float>(s.q_gate),
                                 .k = Address<float>(s.k),
                                 .q_norm = Vector(s.q_norm),
                                 .k_norm = Vector(s.k_norm),
                                 .eps = s.eps,
                                 .q_out = Address<float>(s.q_out),
                                 .k_out = Address<float>(s.k_out)};
}

Launch Binder::Resolve(const step::KvAppend& s) const {
  return backend::KvAppendArgs{
      .rows = rows_,
      .k = Address<float>(s.k),
      .v = Address<float>(s.v),
      .cache = Cache(s.k_cache, s.v_cache, s.page_table)};
}

Launch Binder::Resolve(const step::Attention& s) const {
  return backend::AttentionArgs{
      .rows = rows_,
      .form = Form(),
      .heads = s.heads,
      .scale = 1.0f / std::sqrt(static_cast<float>(s.head_dim)),
      .q = Address<float>(s.q),
      .q_gate = Address<float>(s.q_gate),
      .cache = Cache(s.k_cache, s.v_cache, s.page_table),
      .out = Address<float>(s.out)};
}

Launch Binder::Resolve(const step::Conv& s) const {
  return backend::ConvArgs{.rows = rows_,
                           .form = Form(),
                           .u = Address<float>(s.u),
                           .weight = Matrix(s.weight),
                           .state = Address<float>(s.state),
                           .out = Address<float>(s.out)};
}

Launch Binder::Resolve(const step::DeltaRule& s) const {
  return backend::DeltaRuleArgs{.rows = rows_,
                                .form = s.form == step::DeltaForm::kChunked
                                            ? backend::DeltaForm::kChunked
                                            : backend::DeltaForm::kRecurrent,
                                .key_heads = s.key_heads,
                                .value_heads = s.value_heads,
                                .key_dim = s.key_dim,
                                .value_dim = s.value_dim,
                                .qkv = Address<float>(s.qkv),
                                .b = Address<float>(s.b),
                                .a = Address<float>(s.a),
                                .a_log = Vector(s.a_log),
                                .dt_bias = Vector(s.dt_bias),
                                .state = Address<float>(s.state),
                                .scratch = Address<float>(s.scratch),
                                .out = Address<float>(s.out)};
}

Launch Binder::Resolve(const step::GatedNorm& s) const {
  return backend::GatedNormArgs{.rows = rows_,
                                .heads = s.heads,
                                .head_dim = s.head_dim,
                                .o = Address<float>(s.o),
                                .z = Address<float>(s.z),
                                .weight = Vector(s.weight),
                                .eps = s.eps,
                                .out = Address<float>(s.out)};
}

Launch Binder::Resolve(const step::Activation& s) const {
  return SiluTimes(s.gate, s.up, s.out);
}

Launch Binder::Resolve(const step::ResidualAdd& s) const {
  return backend::ResidualAddArgs{.rows = rows_,
                                  .width = Decl(s.out).shape[1],
                                  .residual = Address<float>(s.residual),
                                  .addend = Address<float>(s.addend),
                                  .out = Address<float>(s.out)};
}

Launch Binder::Resolve(const step::GatedAdd& s) const {
  return backend::GatedAddArgs{.rows = rows_,
                               .width = Decl(s.out).shape[1],
                               .addend = Address<float>(s.addend),
                               .gate = Address<float>(s.gate),
                               .x = Address<float>(s.x),
                               .out = Address<float>(s.out)};
}

Launch Binder::Resolve(const step::MoeRoute& s) const {
  if (s.router == step::RouterKind::kPrecomputed) {
    return backend::PrecomputedRouteArgs{
        .rows = rows_,
        .num_experts = s.num_experts,
        .top_k = s.top_k,
        .in_ids = Address<int32_t>(s.in_ids),
        .in_weights = Address<float>(s.in_weights),
        .ids = Address<int32_t>(s.ids),
        .weights = Address<float>(s.weights),
        .flag = Address<int32_t>(s.flag)};
  }
  return backend::RouteArgs{.rows = rows_,
                            .num_experts = s.num_experts,
                            .top_k = s.top_k,
                            .renormalise = s.renormalise != 0,
                            .scores = Address<float>(s.scores),
                            .ids = Address<int32_t>(s.ids),
                            .weights = Address<float>(s.weights),
                            .flag = Address<int32_t>(s.flag)};
}

Launch Binder::Resolve(const step::IndexedMoeGemv& s) const {
  const int64_t top_k = View(s.experts)->top_k;
  if (s.which == step::ExpertPart::kGateUp) {
    return backend::IndexedGateUpArgs{.rows = rows_,
                                      .top_k = top_k,
                                      .table = Experts(s.experts),
                                      .ids = Address<int32_t>(s.ids),
                                      .x = Address<float>(s.x),
                                      .gate = Address<float>(s.out),
                                      .up = Address<float>(s.up)};
  }
  return backend::IndexedDownArgs{.rows = rows_,
                                  .top_k = top_k,
                                  .table = Experts(s.experts),
                                  .ids = Address<int32_t>(s.ids),
                                  .act = Address<float>(s.x),
                                  .out = Address<float>(s.out)};
}

Launch Binder::Resolve(const step::MoeScatter& s) const {
  const backend::ExpertTableView table = Experts(s.experts);
  return backend::ScatterArgs{.rows = rows_,
                              .top_k = View(s.experts)->top_k,
                              .num_experts = table.num_experts,
                              .num_local = table.num_local,
                              .global_to_local = table.global_to_local,
                              .tile_rows = s.tile_rows,
                              .max_rows = Decl(s.sorted_slot).shape[0],
                              .ids = Address<int32_t>(s.ids),
                              .counts = Address<int32_t>(s.counts),
                              .offsets = Address<int32_t>(s.offsets),
                              .sorted_slot = Address<int32_t>(s.sorted_slot),
                              .tile_expert = Address<int32_t>(s.tile_expert),
                              .inverse_perm = Address<int32_t>(s.inverse_perm)};
}

Launch Binder::Resolve(const step::GroupedMoeGemm& s) const {
  const int64_t max_rows = Decl(s.sorted_slot).shape[0];
  if (s.which == step::ExpertPart::kGateUp) {
    return backend::GroupedGateUpArgs{
        .rows = rows_,
        .top_k = View(s.experts)->top_k,
        .tile_rows = s.tile_rows,
        .max_rows = max_rows,
        .table = Experts(s.experts),
        .sorted_slot = Address<int32_t>(s.sorted_slot),
        .tile_expert = Address<int32_t>(s.tile_expert),
        .x = Input(s.x),
        .y = Address<float>(s.y)};
  }
  return backend::GroupedDownArgs{
      .rows = rows_,
      .tile_rows = s.tile_rows,
      .max_rows = max_rows,
      .table = Experts(s.experts),
      .sorted_slot = Address<int32_t>(s.sorted_slot),
      .tile_expert = Address<int32_t>(s.tile_expert),
      .act = Input(s.x),
      .y = Address<float>(s.y)};
}

Launch Binder::Resolve(const step::MoeGateUpUnscatter& s) const {
  return backend::UnscatterArgs{.rows = rows_,
                                .max_rows = Decl(s.sorted_slot).shape[0],
                                .width = Decl(s.gate).shape[1],
                                .sorted_slot = Address<int32_t>(s.sorted_slot),
                                .y = Address<float>(s.y),
                                .gate = Address<float>(s.gate),
                                .up = Address<float>(s.up)};
}

Launch Binder::Resolve(const step::MoeActivation& s) const {
  return SiluTimes(s.gate, s.up, s.out);
}

Launch Binder::Resolve(const step::MoeCombine& s) const {
  const backend::ExpertTableView table = Experts(s.experts);
  return backend::CombineArgs{.rows = rows_,
                              .top_k = View(s.experts)->top_k,
                              .num_experts = table.num_experts,
                              .lanes = s.lanes,
                              .first_lane = s.first_lane,
                              .num_lanes = s.num_lanes,
                              .width = Decl(s.out).shape[1],
                              .ids = Address<int32_t>(s.ids),
                              .weights = Address<float>(s.weights),
                              .d = Address<float>(s.d),
                              .inverse_perm = Address<int32_t>(s.inverse_perm),
                              .global_to_local = table.global_to_local,
                              .out = Address<float>(s.out)};
}

Launch Binder::Identity(BufferId x, BufferId out,
                        const step::GroupRef& group) const {
  SIGNET_CHECK(group.ranks.size() == 1);
  return backend::IdentityReduceArgs{.rows = rows_,
                                     .width = Decl(out).shape[1],
                                     .x = Address<float>(x),
                                     .out = Address<float>(out)};
}

Launch Binder::Resolve(const step::AllReduce& s) const {
  if (s.group.ranks.size() == 1) return Identity(s.x, s.out, s.group);
  return GroupReduce{
      .group = Meeting(communicators_.Along(s.group.axis), s.group),
      .live = rows_.live,
      .width = Decl(s.out).shape[1],
      .x = Address<float>(s.x),
      .out = Address<float>(s.out)};
}

Launch Binder::Resolve(const step::Gather& s) const {
  const BufferDecl& out = Decl(s.out);
  return GroupGather{
      .group = Meeting(communicators_.Along(s.group.axis), s.group),
      .live = rows_.live,
      .max_rows = out.shape[0],
      .columns = out.shape[1],
      .element_bytes = static_cast<int64_t>(tensor::SizeOf(out.dtype)),
      .x = Address<std::byte>(s.x),
      .out = Address<std::byte>(s.out)};
}

Launch Binder::Spread(collective::Communicator* group,
                      std::optional<BufferId> x, std::optional<BufferId> out,
                      int root) const {
  const BufferDecl& rows = Decl(x ? *x : *out);
  const int64_t max_rows = rows.shape[0];
  return GroupBroadcast{
      .group = group,
      .live = rows_.live,
      .max_rows = max_rows,
      .row_bytes = rows.shape.StorageBytes(rows.dtype).value() /
                   static_cast<uint64_t>(max_rows),
      .x = Address<std::byte>(x),
      .out = Address<std::byte>(out),
      .root = root};
}

Launch Binder::Resolve(const step::Broadcast& s) const {
  return Spread(Meeting(communicators_.Along(s.group.axis), s.group), s.x,
                s.out, MemberOf(s.group, s.root));
}

Launch Binder::Resolve(const step::BandTransfer& s) const {
  collective::Communicator* end =
      s.x ? communicators_.next_stage : communicators_.previous_stage;
  return Spread(Meeting(end, s.group), s.x, s.out, /*root=*/0);
}

Launch Binder::Resolve(const step::Logits& s) const {
  return backend::LogitsArgs{.rows = rows_,
                             .which = s.which == step::LogitRows::kAll
                                          ? backend::LogitRows::kAll
                                          : backend::LogitRows::kLast,
                             .x = Input(s.x),
                             .weight = Matrix(s.weight),
                             .out = Address<float>(s.out)};
}

Launch Binder::Resolve(const step::Sample& s) const {
  return backend::SampleArgs{.rows = rows_,
                             .which = s.which == step::LogitRows::kAll
                                          ? backend::LogitRows::kAll
                                          : backend::LogitRows::kLast,
                             .vocab = Decl(s.logits).shape[1],
                             .logits = Address<float>(s.logits),
                             .params = Address<backend::SamplingRow>(s.params),
                             .scratch = Address<int32_t>(s.scratch),
                             .ids = Address<int32_t>(s.ids),
                             .flag = Address<int32_t>(s.flag)};
}

}  // namespace signet::exec
