#include "exec/fuse.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>

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

// Whether anything in `launches` reads `buffer` as the input of a product or of
// experts: such an input must still be written.
bool IsReadAgain(Rest launches, const float* buffer) {
  return std::any_of(launches.begin(), launches.end(), [&](const Launch& l) {
    if (const auto* product = std::get_if<backend::ProjectionArgs>(&l)) {
      return product->x.data == buffer;
    }
    if (const auto* experts = std::get_if<backend::IndexedGateUpArgs>(&l)) {
      return experts->x == buffer;
    }
    // Written anew: later readers mean another value.
    return false;
  });
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
  // Up to the next norm, which begins another stretch of the residual.
  const Rest after = rest.subspan(count);
  const auto end =
      std::find_if(after.begin(), after.end(), [](const Launch& l) {
        return std::holds_alternative<backend::NormArgs>(l);
      });
  fused.keep_normed = IsReadAgain(Rest(after.begin(), end), norm->out);
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

std::optional<Fused> MoeTail(Rest rest) {
  const auto* down = At<backend::IndexedDownArgs>(rest, 0);
  const auto* shared = At<backend::ProjectionArgs>(rest, 1);
  const auto* combine = At<backend::CombineArgs>(rest, 2);
  const auto* reduce = At<backend::IdentityReduceArgs>(rest, 3);
  const auto* gated = At<backend::GatedAddArgs>(rest, 4);
  const auto* add = At<backend::ResidualAddArgs>(rest, 5);
  if (down == nullptr || shared == nullptr || combine == nullptr ||
      reduce == nullptr || gated == nullptr || add == nullptr ||
      down->rows.capacity > kMaxProductRows || combine->d != down->out ||
      reduce->x != combine->out || gated->addend != reduce->out ||
      gated->x != shared->out || add->addend != gated->out) {
    return {};
  }
  return Fused{backend::MoeTailArgs{.down = *down,
                                    .shared_down = *shared,
                                    .combine = *combine,
                                    .reduce = *reduce,
                                    .gated = *gated,
                                    .add = *add},
               6};
}

constexpr std::array kPatterns = {NormProducts, ProductAdd,  DeltaMix,
                                  Attend,       RouteGateUp, MoeTail};

}  // namespace

std::vector<FusedLaunch> Fuse(std::span<const Launch> launches,
                              const IsIndependent& is_independent) {
  std::vector<FusedLaunch> fused;
  size_t i = 0;
  while (i < launches.size()) {
    FusedLaunch next = {launches[i], 1};
    for (const auto pattern : kPatterns) {
      std::optional<FusedLaunch> found = pattern(launches.subspan(i));
      if (!found || !is_independent(i, found->count)) continue;
      next = *std::move(found);
      break;
    }
    i += next.count;
    fused.push_back(std::move(next));
  }
  return fused;
}

}  // namespace signet::exec
