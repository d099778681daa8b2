#include "step/operands.h"

namespace signet::step {

std::optional<InPlacePair> InPlace(const Step& step) {
  if (const auto* s = std::get_if<Activation>(&step)) {
    return InPlacePair{s->gate, s->out};
  }
  if (const auto* s = std::get_if<MoeActivation>(&step)) {
    return InPlacePair{s->gate, s->out};
  }
  if (const auto* s = std::get_if<ResidualAdd>(&step)) {
    return InPlacePair{s->residual, s->out};
  }
  if (const auto* s = std::get_if<GatedAdd>(&step)) {
    return InPlacePair{s->addend, s->out};
  }
  return std::nullopt;
}

}  // namespace signet::step
