#include "exec/fuse.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <type_traits>
#include <variant>

namespace signet::exec {
namespace {

using Rest = std::span<const Launch>;

// The most rows that the fused products hold in registers.
constexpr int64_t kMaxProductRows = 8;

using Fused = FusedLaunch;

template <typename Args>
const Args* At(Rest rest, size_t i) {
  return i < rest.size() ? std::get_if<Args>(&rest[i]) : nullptr;
}

// Whether a launch writes `buffer` from its start on.
bool Writes(const Launch& launch, const float* buffer) {
  const void* const address = buffer;
  return std::visit(
      [&](const auto& args) {
        bool writes = false;
        if constexpr (requires { args.out; }) writes = args.out == address;
        if constexpr (requires { args.rounded == address; }) {
          writes = writes || args.rounded == address;
        }
        return writes;
      },
      launch);
}

// Whether anything in `launches` reads `buffer`, as it is now, as an input of
// products or of experts: such an input must still be written. Up to the next
// norm, which begins another stretch of the residual.
bool IsReadAgain(Rest launches, const float* buffer) {
  for (const Launch& l : launches) {
    if (std::holds_alternative<backend::NormArgs>(l)) return false;
    const bool reads = std::visit(
        [&]<typename Args>(const Args& args) {
          if constexpr (requires { args.x.data; }) {
            return args.x.data == buffer;
          } else if constexpr (std::is_same_v<Args, backend::RoundArgs> ||
                               std::is_same_v<Args,
                                              backend::IndexedGateUpArgs>) {
            return args.x == buffer;
          } else {
            return false;
          }
        },
        l);
    if (reads) return true;
    if (Writes(l, buffer)) return false;
  }
  return false;
}

// Norm, its products, and the activation of the last two.
std::optional<Fused> NormProducts(Rest rest) {
  const auto* norm = At<backend::NormArgs>(rest, 0);
  if (norm == nullptr || norm->rows.capacity > kMaxProductRows) return {};
  backend::NormProductsArgs fused = {.norm = *norm};
  size_t count = 1;
  while (fused.num_products < backend::kMaxFusedProducts) {
    const auto* product = At<backend::ProjectionArgs>(rest, count);
    if (product == nullptr || product->x.data != norm->out) break;
    fused.products[static_cast<size_t>(fused.num_products++)] = *product;
    ++count;
  }
  if (fused.num_products == 0) return {};
  const auto* activation = At<backend::ActivationArgs>(rest, count);
  if (activation != nullptr && activation->rounded == nullptr &&
      activation->multiple == 1 && fused.num_products >= 2) {
    const auto last = static_cast<size_t>(fused.num_products - 1);
    if (activation->gate == fused.products[last - 1].out &&
        activation->up == fused.products[last].out) {
      fused.activated = true;
      fused.activation = *activation;
      ++count;
    }
  }
  fused.keep_normed = IsReadAgain(rest.subspan(count), norm->out);
  return Fused{fused, count};
}

// The round at `i` of all that `out` holds, one row a row of the call.
const backend::RoundArgs* RoundOf(Rest rest, size_t i, const float* out,
                                  int64_t width) {
  const auto* round = At<backend::RoundArgs>(rest, i);
  return round != nullptr && round->x == out && round->multiple == 1 &&
                 round->width == width
             ? round
             : nullptr;
}

std::optional<Fused> NormRound(Rest rest) {
  const auto* norm = At<backend::NormArgs>(rest, 0);
  if (norm == nullptr) return {};
  const backend::RoundArgs* round = RoundOf(rest, 1, norm->out, norm->width);
  if (round == nullptr) return {};
  return Fused{backend::NormRoundArgs{
                   .norm = *norm,
                   .round = *round,
                   .keep_normed = IsReadAgain(rest.subspan(2), norm->out)},
               2};
}

// From the residual add that a norm reads to the round.
std::optional<Fused> AddNormRound(Rest rest) {
  const auto* add = At<backend::ResidualAddArgs>(rest, 0);
  if (add == nullptr) return {};
  const std::optional<Fused> end = NormRound(rest.subspan(1));
  if (!end) return {};
  const auto& tail = std::get<backend::NormRoundArgs>(end->launch);
  if (tail.norm.x != add->out || tail.norm.width != add->width) return {};
  return Fused{backend::AddNormRoundArgs{.add = *add,
                                         .norm = tail.norm,
                                         .round = tail.round,
                                         .keep_normed = tail.keep_normed},
               3};
}

// The round after the gated norm at `i`, if nothing else reads what it rounds.
const backend::RoundArgs* RoundOfGatedNorm(Rest rest, size_t i) {
  const auto* norm = At<backend::GatedNormArgs>(rest, i);
  if (norm == nullptr ||
      IsReadAgain(rest.subspan(std::min(i + 2, rest.size())), norm->out)) {
    return nullptr;
  }
  return RoundOf(rest, i + 1, norm->out, norm->heads * norm->head_dim);
}

std::optional<Fused> GatedNormRound(Rest rest) {
  const backend::RoundArgs* round = RoundOfGatedNorm(rest, 0);
  if (round == nullptr) return {};
  return Fused{
      backend::GatedNormRoundArgs{.norm = *At<backend::GatedNormArgs>(rest, 0),
                                  .round = *round},
      2};
}

// Products of one rounded input, two at least.
std::optional<Fused> RoundedProducts(Rest rest) {
  backend::RoundedProductsArgs fused;
  size_t count = 0;
  while (count < fused.products.size()) {
    const auto* product = At<backend::ProjectionArgs>(rest, count);
    if (product == nullptr || product->x.dtype != tensor::DType::kBF16 ||
        (count > 0 && product->x.data != fused.products[0].x.data)) {
      break;
    }
    fused.products[count++] = *product;
  }
  if (count < 2) return {};
  fused.num_products = static_cast<int>(count);
  return Fused{fused, count};
}

std::optional<Fused> ProductAdd(Rest rest) {
  const auto* product = At<backend::ProjectionArgs>(rest, 0);
  const auto* add = At<backend::ResidualAddArgs>(rest, 1);
  if (product == nullptr || add == nullptr ||
      product->rows.capacity > kMaxProductRows || add->addend != product->out) {
    return {};
  }
  return Fused{backend::ProductAddArgs{.product = *product, .add = *add}, 2};
}

std::optional<Fused> DeltaMix(Rest rest) {
  const auto* conv = At<backend::ConvArgs>(rest, 0);
  const auto* delta = At<backend::DeltaRuleArgs>(rest, 1);
  const auto* norm = At<backend::GatedNormArgs>(rest, 2);
  if (conv == nullptr || delta == nullptr || norm == nullptr ||
      conv->form != backend::RowForm::kSequenceEach ||
      delta->form != backend::DeltaForm::kRecurrent ||
      delta->qkv != conv->out || norm->o != delta->out) {
    return {};
  }
  return Fused{
      backend::DeltaMixArgs{.conv = *conv, .delta = *delta, .norm = *norm}, 3};
}

std::optional<Fused> DeltaMixRound(Rest rest) {
  std::optional<Fused> mix = DeltaMix(rest);
  const backend::RoundArgs* round = RoundOfGatedNorm(rest, 2);
  if (!mix || round == nullptr) return {};
  auto& args = std::get<backend::DeltaMixArgs>(mix->launch);
  args.rounded = true;
  args.round = *round;
  mix->count = 4;
  return mix;
}

std::optional<Fused> Attend(Rest rest) {
  const auto* rope = At<backend::QkNormRopeArgs>(rest, 0);
  const auto* append = At<backend::KvAppendArgs>(rest, 1);
  const auto* attention = At<backend::AttentionArgs>(rest, 2);
  if (rope == nullptr || append == nullptr || attention == nullptr ||
      attention->form != backend::RowForm::kSequenceEach ||
      append->k != rope->k_out || attention->q != rope->q_out) {
    return {};
  }
  return Fused{backend::AttendArgs{
                   .rope = *rope, .append = *append, .attention = *attention},
               3};
}

std::optional<Fused> RouteGateUp(Rest rest) {
  const auto* route = At<backend::RouteArgs>(rest, 0);
  const auto* gate_up = At<backend::IndexedGateUpArgs>(rest, 1);
  const auto* activation = At<backend::ActivationArgs>(rest, 2);
  if (route == nullptr || gate_up == nullptr || activation == nullptr ||
      route->rows.capacity > kMaxProductRows ||
      activation->rounded != nullptr || gate_up->ids != route->ids ||
      activation->gate != gate_up->gate || activation->up != gate_up->up) {
    return {};
  }
  return Fused{
      backend::RouteGateUpArgs{
          .route = *route, .gate_up = *gate_up, .activation = *activation},
      3};
}

std::optional<Fused> UnscatterActivation(Rest rest) {
  const auto* unscatter = At<backend::UnscatterArgs>(rest, 0);
  const auto* activation = At<backend::ActivationArgs>(rest, 1);
  if (unscatter == nullptr || activation == nullptr ||
      activation->gate != unscatter->gate || activation->up != unscatter->up ||
      activation->width != unscatter->width) {
    return {};
  }
  return Fused{backend::UnscatterActivationArgs{.unscatter = *unscatter,
                                                .activation = *activation},
               2};
}

// Combine to the residual.
std::optional<Fused> CombineTail(Rest rest) {
  const auto* combine = At<backend::CombineArgs>(rest, 0);
  const auto* reduce = At<backend::IdentityReduceArgs>(rest, 1);
  const auto* gated = At<backend::GatedAddArgs>(rest, 2);
  const auto* add = At<backend::ResidualAddArgs>(rest, 3);
  if (combine == nullptr || reduce == nullptr || gated == nullptr ||
      add == nullptr || reduce->x != combine->out ||
      gated->addend != reduce->out || add->addend != gated->out) {
    return {};
  }
  return Fused{
      backend::CombineTailArgs{
          .combine = *combine, .reduce = *reduce, .gated = *gated, .add = *add},
      4};
}

// Combine to the residual, and the norm that begins the next part.
std::optional<Fused> CombineNorm(Rest rest) {
  const std::optional<Fused> tail = CombineTail(rest);
  if (!tail) return {};
  const std::optional<Fused> end = NormRound(rest.subspan(tail->count));
  if (!end) return {};
  const backend::CombineNormArgs fused = {
      .tail = std::get<backend::CombineTailArgs>(tail->launch),
      .norm = std::get<backend::NormRoundArgs>(end->launch)};
  const backend::ResidualAddArgs& add = fused.tail.add;
  const backend::NormArgs& norm = fused.norm.norm;
  if (norm.x != add.out || norm.width != add.width ||
      norm.rows.live != add.rows.live ||
      norm.rows.capacity != add.rows.capacity) {
    return {};
  }
  return Fused{fused, tail->count + end->count};
}

// Down of the selected and of the shared expert to the residual.
std::optional<Fused> MoeTail(Rest rest) {
  const auto* down = At<backend::IndexedDownArgs>(rest, 0);
  const auto* shared = At<backend::ProjectionArgs>(rest, 1);
  if (down == nullptr || shared == nullptr ||
      down->rows.capacity > kMaxProductRows) {
    return {};
  }
  const std::optional<Fused> end = CombineTail(rest.subspan(2));
  if (!end) return {};
  const auto& tail = std::get<backend::CombineTailArgs>(end->launch);
  if (tail.combine.d != down->out || tail.combine.ids != down->ids ||
      tail.gated.x != shared->out) {
    return {};
  }
  return Fused{backend::MoeTailArgs{.down = *down,
                                    .shared_down = *shared,
                                    .combine = tail.combine,
                                    .reduce = tail.reduce,
                                    .gated = tail.gated,
                                    .add = tail.add},
               6};
}

// The routed block, from its norm to the residual.
std::optional<Fused> MoeBlock(Rest rest) {
  const std::optional<Fused> products = NormProducts(rest);
  if (!products) return {};
  const std::optional<Fused> experts =
      RouteGateUp(rest.subspan(products->count));
  if (!experts) return {};
  const std::optional<Fused> tail =
      MoeTail(rest.subspan(products->count + experts->count));
  if (!tail) return {};
  const backend::MoeBlockArgs block = {
      .products = std::get<backend::NormProductsArgs>(products->launch),
      .experts = std::get<backend::RouteGateUpArgs>(experts->launch),
      .tail = std::get<backend::MoeTailArgs>(tail->launch)};
  const auto& first = block.products;
  const backend::RouteArgs& route = block.experts.route;
  // Not one whose output need not be written.
  const int written = first.num_products - (first.activated ? 2 : 0);
  const bool has_scores =
      std::any_of(first.products.begin(), first.products.begin() + written,
                  [&](const backend::ProjectionArgs& product) {
                    return product.out == route.scores;
                  });
  if (!has_scores || block.experts.gate_up.x != first.norm.out ||
      block.tail.combine.ids != route.ids ||
      block.tail.combine.weights != route.weights ||
      block.tail.down.act != block.experts.activation.out) {
    return {};
  }
  return Fused{block, products->count + experts->count + tail->count};
}

using Pattern = std::optional<Fused> (*)(Rest);

// Where two begin alike, the longer first.
constexpr std::array<Pattern, 15> kPatterns = {
    MoeBlock,        NormProducts,   AddNormRound,  NormRound,
    RoundedProducts, ProductAdd,     DeltaMixRound, DeltaMix,
    Attend,          GatedNormRound, RouteGateUp,   UnscatterActivation,
    MoeTail,         CombineNorm,    CombineTail};

}  // namespace

std::vector<FusedLaunch> Fuse(std::span<const Launch> launches,
                              const IsIndependent& is_independent) {
  std::vector<FusedLaunch> fused;
  size_t i = 0;
  while (i < launches.size()) {
    FusedLaunch next = {launches[i], 1};
    for (const Pattern pattern : kPatterns) {
      std::optional<FusedLaunch> found = pattern(launches.subspan(i));
      if (!found || !is_independent(i, found->count)) continue;
      next = *std::move(found);
      break;
    }
    i += next.count;
    fused.push_back(next);
  }
  return fused;
}

}  // namespace signet::exec
