// Keys of what is not measured are there all the same, and null.

#include "evidence/bench_report.h"
#include "evidence/facts_json.h"

namespace signet::evidence {
namespace {

using Json = nlohmann::ordered_json;

Json NumberOrNull(double value) { return value > 0 ? Json(value) : Json(); }

Json SpreadJson(const Spread& spread, double scale = 1) {
  return {{"median", scale * spread.median},
          {"min", scale * spread.min},
          {"max", scale * spread.max}};
}

Json ShareOrNull(double done, double seconds, double ceiling) {
  if (seconds <= 0 || ceiling <= 0) return {};
  return done / seconds / ceiling;
}

double Floor(const Costs& costs, const Ceilings& ceilings) {
  return FloorSeconds(costs, ceilings.read_bytes_per_second,
                      ceilings.operations_per_second);
}

Json CostsJson(const Costs& costs, double Cost::* what) {
  Json json = {{"total", costs.Total().*what}};
  for (size_t i = 0; i < kNumParts; ++i) {
    json[std::string(Name(static_cast<Part>(i)))] = costs.parts[i].*what;
  }
  return json;
}

Json CeilingsJson(const Ceilings& ceilings) {
  return {{"read_bytes_s", NumberOrNull(ceilings.read_bytes_per_second)},
          {"read_of", Name(ceilings.read_of)},
          {"operations_s", NumberOrNull(ceilings.operations_per_second)},
          {"operations", ceilings.operations},
          {"host_to_device_bytes_s",
           NumberOrNull(ceilings.host_to_device_bytes_per_second)}};
}

Json PlanJson(const PlanResult& planning) {
  return {{"ms", 1e3 * planning.seconds},
          {"programs", planning.sealing.programs},
          {"steps", planning.sealing.steps},
          {"seal_ms", planning.sealing.milliseconds}};
}

Json LoadJson(const LoadResult& load) {
  const double rate =
      load.seconds > 0 ? static_cast<double>(load.bytes) / load.seconds : 0;
  return {{"bytes", load.bytes}, {"seconds", load.seconds}, {"bytes_s", rate}};
}

Json PrefillJson(const PrefillResult& prefill, const Ceilings& ceilings) {
  const double seconds = prefill.seconds.median;
  const double floor = Floor(prefill.costs, ceilings);
  return {{"tokens", prefill.tokens},
          {"ttft_ms", SpreadJson(prefill.seconds, 1e3)},
          {"tok_s", SpreadJson(prefill.tokens_per_second)},
          {"bytes", CostsJson(prefill.costs, &Cost::bytes)},
          {"operations", CostsJson(prefill.costs, &Cost::operations)},
          {"operations_share",
           ShareOrNull(prefill.costs.Total().operations, seconds,
                       ceilings.operations_per_second)},
          {"floor_ms", 1e3 * floor},
          {"floor_share", seconds > 0 ? floor / seconds : 0}};
}

Json ExpertsJson(const std::optional<RoutedExperts>& experts) {
  if (!experts) return {};
  return {{"steps", experts->steps},
          {"met", experts->met},
          {"uniform", experts->uniform},
          {"same_tokens", experts->same_tokens}};
}

Json DecodeJson(const DecodeResult& decode, const Ceilings& ceilings) {
  const Cost total = decode.costs.Total();
  const double seconds = decode.step_seconds.median;
  const double ceiling = total.bytes > 0
                             ? static_cast<double>(decode.batch) *
                                   ceilings.read_bytes_per_second / total.bytes
                             : 0;
  const std::string reason = decode.VoidReason();
  return {{"batch", decode.batch},
          {"steps", decode.steps},
          {"tok_s", SpreadJson(decode.tokens_per_second)},
          {"step_ms", SpreadJson(decode.step_seconds, 1e3)},
          {"attended", decode.attended},
          {"experts", ExpertsJson(decode.experts)},
          {"bytes", CostsJson(decode.costs, &Cost::bytes)},
          {"read_share",
           ShareOrNull(total.bytes, seconds, ceilings.read_bytes_per_second)},
          {"operations", CostsJson(decode.costs, &Cost::operations)},
          {"ceiling_tok_s", NumberOrNull(ceiling)},
          {"void", reason.empty() ? Json() : Json(reason)}};
}

Json ProfileJson(const Profile& profile, const Ceilings& ceilings) {
  Json launches = Json::array();
  for (const ProfileRow& row : profile.launches) {
    const bool known = row.cost.has_value();
    const Cost cost = row.cost.value_or(Cost());
    const Json read_share =
        ShareOrNull(cost.bytes, row.seconds, ceilings.read_bytes_per_second);
    const Json operations_share = ShareOrNull(cost.operations, row.seconds,
                                              ceilings.operations_per_second);
    launches.push_back(
        {{"name", row.name},
         {"count", row.launches},
         {"mean_us", 1e6 * row.seconds / static_cast<double>(row.launches)},
         {"share", profile.seconds > 0 ? row.seconds / profile.seconds : 0},
         {"bytes", known ? Json(cost.bytes) : Json()},
         {"read_share", known ? read_share : Json()},
         {"operations", known ? Json(cost.operations) : Json()},
         {"operations_share", known ? operations_share : Json()}});
  }
  return {
      {"shape", Name(profile.kind)},
      {"unfused", profile.unfused},
      {"rows", profile.rows},
      {"capacity", profile.capacity},
      {"calls", profile.calls},
      {"ms", 1e3 * profile.seconds},
      {"timing_us", 1e6 * profile.nothing_seconds},
      {"block_in_a_row_us",
       profile.block_in_a_row ? Json(1e6 * *profile.block_in_a_row) : Json()},
      {"served_ms",
       profile.served_seconds ? Json(1e3 * *profile.served_seconds) : Json()},
      {"launches", launches}};
}

}  // namespace

Json BenchJson(const BenchReport& report, const std::string& build) {
  Json prefill = Json::array();
  for (const PrefillResult& one : report.prefill) {
    prefill.push_back(PrefillJson(one, report.ceilings));
  }
  Json decode = Json::array();
  for (const DecodeResult& one : report.decode) {
    decode.push_back(DecodeJson(one, report.ceilings));
  }
  Json profiles = Json::array();
  for (const Profile& one : report.profiles) {
    profiles.push_back(ProfileJson(one, report.ceilings));
  }
  Json bench;
  bench["signet_bench"] = 1;
  AddBuildFacts(build, bench);
  bench.update(
      {{"model", report.model},
       {"folder", report.folder},
       {"device", DeviceJson(report.device)},
       {"contract", report.contract},
       {"threads", report.threads},
       {"context", report.context},
       {"batch", report.batch},
       {"layers", report.layers},
       {"num_experts", report.num_experts},
       {"repeat", report.repeat},
       {"ceilings", CeilingsJson(report.ceilings)},
       {"plan", PlanJson(report.planning)},
       {"load", LoadJson(report.load)},
       {"peak_bytes", report.peak_bytes ? Json(*report.peak_bytes) : Json()},
       {"prefill", prefill},
       {"decode", decode},
       {"profile", profiles}});
  return bench;
}

}  // namespace signet::evidence
