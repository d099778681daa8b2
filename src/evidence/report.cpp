#include "evidence/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "engine/devices.h"

namespace signet::evidence {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxLines = 10;  // of one side's differences, for people

std::vector<std::string> DeviceNames(const SideReport& side) {
  std::vector<std::string> names;
  for (const topology::DeviceIdentity& device : side.devices) {
    names.push_back(DeviceName(device));
  }
  return names;
}

std::string Tokens(const SideReport& side) {
  if (!side.tapped) return "-";
  return fmt::format("{}/{}", side.tapped->tokens_equal(),
                     side.tapped->tokens_compared());
}

std::string Largest(const SideReport& side) {
  if (!side.tapped) return "-";
  const MaxDifference max = LargestDifference(side);
  return fmt::format("{:.3g}", std::max({max.logits, max.residual, max.state}));
}

std::string ResultOf(const SideReport& side) {
  if (!side.holds()) return "DIFFERENT";
  if (!side.tapped) return "consistent";
  return side.bounds ? "within bounds" : "equal";
}

// Columns as wide as their widest cell.
std::string Table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], row[i].size());
    }
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      line += fmt::format("{:<{}}  ", row[i], widths[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  }
  return text;
}

std::string FaultLine(const SelfFault& fault) {
  std::string line = fmt::format("position {}", fault.position);
  if (fault.layer != kNoLayer) line += fmt::format(", layer {}", fault.layer);
  return line + fmt::format(", {}: {}", fault.what, fault.message);
}

void AppendDifferences(const SideReport& side, std::string& text) {
  const auto line = [&text](const std::string& more) {
    text += "  " + more + '\n';
  };
  if (side.different()) {
    line("first difference: " + ToString(*side.different()));
  }
  if (side.tapped) {
    size_t lines = 0;
    for (const auto& [position, report] : side.tapped->positions()) {
      if (!report.failed) continue;
      if (++lines > kMaxLines) {
        line("...");
        break;
      }
      const auto token = [](const std::optional<int32_t>& id) {
        return id ? fmt::format("{}", *id) : std::string("none");
      };
      line(
          fmt::format("position {}: token {} (first side {}), max |d| {:.3g}, "
                      "from {}",
                      position, token(report.token), token(report.first_token),
                      report.max_difference,
                      report.different ? ToString(*report.different) : "-"));
    }
    for (const Excuse& excuse : side.tapped->excuses()) {
      line(fmt::format("excused: {}, margin {:.3g} under {:.3g}",
                       ToString(excuse.place), excuse.margin, excuse.limit));
    }
  }
  for (size_t i = 0; i < std::min(side.faults.size(), kMaxLines); ++i) {
    line(FaultLine(side.faults[i]));
  }
  if (side.num_faults > static_cast<int64_t>(kMaxLines)) {
    line(fmt::format("... {} in all", side.num_faults));
  }
}

Json PlaceJson(const Place& place) {
  return {
      {"position", place.position},
      {"layer", place.layer == kNoLayer ? Json(nullptr) : Json(place.layer)},
      {"what", Name(place.what)}};
}

Json PositionsJson(const SideReport& side) {
  Json list = Json::array();
  if (!side.tapped) return list;
  for (const auto& [position, report] : side.tapped->positions()) {
    list.push_back(
        {{"position", position},
         {"token_first",
          report.first_token ? Json(*report.first_token) : Json(nullptr)},
         {"token", report.token ? Json(*report.token) : Json(nullptr)},
         {"max_difference", report.max_difference},
         {"equal", !report.different.has_value()},
         {"excused", report.excused},
         {"holds", !report.failed}});
  }
  return list;
}

Json FaultsJson(const SideReport& side) {
  Json list = Json::array();
  for (const SelfFault& fault : side.faults) {
    list.push_back(
        {{"position", fault.position},
         {"layer", fault.layer == kNoLayer ? Json(nullptr) : Json(fault.layer)},
         {"what", fault.what},
         {"message", fault.message}});
  }
  return list;
}

Json ExcusesJson(const SideReport& side) {
  Json list = Json::array();
  if (!side.tapped) return list;
  for (const Excuse& excuse : side.tapped->excuses()) {
    Json entry = PlaceJson(excuse.place);
    entry["margin"] = excuse.margin;
    entry["limit"] = excuse.limit;
    list.push_back(std::move(entry));
  }
  return list;
}

template <typename Three>
Json ThreeJson(const Three& three) {
  return {{"logits", three.logits},
          {"residual", three.residual},
          {"state", three.state}};
}

Json SideJson(const SideReport& side) {
  std::vector<std::string> digests;
  for (const Digest& digest : side.digests) digests.push_back(digest.Hex());
  const std::optional<Place> different = side.different();
  return {
      {"mesh", side.request.mesh},
      {"devices", DeviceNames(side)},
      {"emulated", side.emulated},
      {"contract", side.contract.Hex()},
      {"rule", RuleName(side)},
      {"bounds", side.bounds ? ThreeJson(*side.bounds) : Json(nullptr)},
      {"holds", side.holds()},
      {"equal", !different && side.num_faults == 0},
      {"tokens_compared", side.tapped ? side.tapped->tokens_compared() : 0},
      {"tokens_equal", side.tapped ? side.tapped->tokens_equal() : 0},
      {"max_difference", ThreeJson(LargestDifference(side))},
      {"relative_difference",
       ThreeJson(side.tapped ? side.tapped->relative() : RelativeDifference{})},
      {"first_difference", different ? PlaceJson(*different) : Json(nullptr)},
      {"excused", side.tapped ? side.tapped->excused() : 0},
      {"excuses", ExcusesJson(side)},
      {"num_faults", side.num_faults},
      {"faults", FaultsJson(side)},
      {"collectives", side.collectives_a_call},
      {"slots", side.rank_slots},
      {"positions", PositionsJson(side)},
      {"digests", digests}};
}

}  // namespace

std::string_view RuleName(const SideReport& side) {
  if (!side.tapped) return "first";
  return side.bounds ? "bounded" : "bitwise";
}

MaxDifference LargestDifference(const SideReport& side) {
  MaxDifference max;
  for (const std::optional<Comparison>* pass :
       {&side.production, &side.tapped}) {
    if (!*pass) continue;
    const MaxDifference& other = (*pass)->max_difference();
    max.logits = std::max(max.logits, other.logits);
    max.residual = std::max(max.residual, other.residual);
    max.state = std::max(max.state, other.state);
  }
  return max;
}

std::string ReportText(const VerifyReport& report) {
  std::string text =
      fmt::format("model {} ({})\n", report.model, report.folder);
  if (report.prompt_text) {
    text += fmt::format("prompt \"{}\"\n", *report.prompt_text);
  }
  text += fmt::format("ids {}\n", fmt::join(report.prompt, ","));
  text += fmt::format("{} positions, {} of them the prompt's\n\n",
                      report.positions, report.prompt.size());
  std::vector<std::vector<std::string>> rows = {{"side", "devices", "rule",
                                                 "tokens", "max |d|", "excused",
                                                 "slots a rank", "result"}};
  for (const SideReport& side : report.sides) {
    rows.push_back(
        {side.request.mesh,
         fmt::format("{}", fmt::join(DeviceNames(side), ",")),
         std::string(RuleName(side)), Tokens(side), Largest(side),
         side.tapped ? fmt::format("{}", side.tapped->excused()) : "-",
         fmt::format("{}", fmt::join(side.rank_slots, ",")), ResultOf(side)});
  }
  text += Table(rows);
  for (const SideReport& side : report.sides) {
    std::string differences;
    AppendDifferences(side, differences);
    if (differences.empty()) continue;
    text += fmt::format("\n{}\n{}", side.request.mesh, differences);
  }
  if (report.fault) {
    text += fmt::format("\ninjected into every side but the first: {}\n",
                        Name(*report.fault));
  }
  text += fmt::format("\nverdict: {}\n", report.holds()
                                             ? "every side holds"
                                             : "the sides are DIFFERENT");
  return text;
}

Json ReportJson(const VerifyReport& report) {
  Json sides = Json::array();
  for (const SideReport& side : report.sides) sides.push_back(SideJson(side));
  return {{"model", report.model},
          {"folder", report.folder},
          {"model_digest",
           {{"headers", report.digests.headers.Hex()},
            {"tokenizer", report.digests.tokenizer.Hex()}}},
          {"prompt_text",
           report.prompt_text ? Json(*report.prompt_text) : Json(nullptr)},
          {"prompt", report.prompt},
          {"positions", report.positions},
          {"drawn", report.drawn},
          {"inject", report.fault ? Json(Name(*report.fault)) : Json(nullptr)},
          {"holds", report.holds()},
          {"sides", std::move(sides)}};
}

}  // namespace signet::evidence
