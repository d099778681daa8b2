#include "step/steps.h"

#include "step/names.h"

namespace signet::step {
namespace {

constexpr NameTable<RouterKind, 2> kRouterKinds = {
    {"softmax_topk", "precomputed"}};
constexpr NameTable<DeltaForm, 2> kDeltaForms = {{"recurrent", "chunked"}};
constexpr NameTable<LogitRows, 2> kLogitRows = {{"last", "all"}};

static_assert(kRouterKinds.Name(RouterKind::kPrecomputed) == "precomputed");
static_assert(kDeltaForms.Name(DeltaForm::kChunked) == "chunked");
static_assert(kLogitRows.Name(LogitRows::kAll) == "all");

}  // namespace

std::string_view Name(RouterKind router) { return kRouterKinds.Name(router); }
std::string_view Name(DeltaForm form) { return kDeltaForms.Name(form); }
std::string_view Name(LogitRows rows) { return kLogitRows.Name(rows); }

std::optional<RouterKind> ParseRouterKind(std::string_view text) {
  return kRouterKinds.Parse(text);
}
std::optional<DeltaForm> ParseDeltaForm(std::string_view text) {
  return kDeltaForms.Parse(text);
}
std::optional<LogitRows> ParseLogitRows(std::string_view text) {
  return kLogitRows.Parse(text);
}

std::string_view KindName(const Step& step) {
  return std::visit([](const auto& s) { return s.kName; }, step);
}

}  // namespace signet::step
