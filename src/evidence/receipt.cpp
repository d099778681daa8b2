#include "evidence/receipt.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "evidence/facts_json.h"
#include "evidence/report.h"

namespace signet::evidence {
namespace {

using Json = nlohmann::ordered_json;

std::string_view Name(KvType kv) {
  switch (kv) {
    case KvType::kDefault:
      return "default";
    case KvType::kF32:
      return "f32";
    case KvType::kBF16:
      return "bf16";
  }
  return "";
}

std::string_view Name(TpExperts experts) {
  return experts == TpExperts::kOwned ? "owned" : "split";
}

Json OptionsJson(const PlanOptions& options) {
  return {{"devices", options.devices},
          {"context", options.context},
          {"batch", options.batch},
          {"kv", Name(options.kv)},
          {"experts", Name(options.tp_experts)},
          {"page_tokens", options.page_tokens},
          {"decode_buckets", options.decode_buckets},
          {"prefill_chunks", options.prefill_chunks}};
}

Json BoundsJson(const std::optional<Bounds>& bounds) {
  if (!bounds) return nullptr;
  return {{"logits", bounds->logits},
          {"residual", bounds->residual},
          {"state", bounds->state}};
}

// The binding: what the contract leaves out of itself (P6).
Json BindingJson(const SideReport& side) {
  Json devices = Json::array();
  for (const topology::DeviceIdentity& device : side.devices) {
    devices.push_back(DeviceJson(device));
  }
  return {{"contract", side.contract.Hex()},
          {"devices", std::move(devices)},
          {"epoch", side.epoch}};
}

Json SideJson(const SideReport& side) {
  Json digests = Json::array();
  for (const Digest& digest : side.digests) digests.push_back(digest.Hex());
  const MaxDifference max = LargestDifference(side);
  return {{"mesh", side.request.mesh},
          {"devices", side.request.devices},
          {"emulated", side.emulated},
          {"binding", BindingJson(side)},
          {"rule", RuleName(side)},
          {"bounds", BoundsJson(side.bounds)},
          {"holds", side.holds()},
          {"equal", !side.different() && side.num_faults == 0},
          {"max_difference", std::max({max.logits, max.residual, max.state})},
          {"excused", side.tapped ? side.tapped->excused() : 0},
          {"slots", side.rank_slots},
          {"digests", std::move(digests)}};
}

// One word for a shell. Control characters are spelt, so that a receipt cannot
// speak to the terminal.
std::string Quoted(std::string_view text) {
  const bool plain =
      !text.empty() && text.find_first_not_of(
                           "abcdefghijklmnopqrstuvwxyz"
                           "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                           "0123456789=@:,._/-") == std::string_view::npos;
  if (plain) return std::string(text);
  const auto is_control = [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte < ' ' || byte == 0x7f;
  };
  const bool spelt = std::any_of(text.begin(), text.end(), is_control);
  std::string quoted = spelt ? "$'" : "'";
  for (const char c : text) {
    if (is_control(c)) {
      quoted += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else if (c == '\'') {
      quoted += spelt ? "\\'" : "'\\''";
    } else if (c == '\\' && spelt) {
      quoted += "\\\\";
    } else {
      quoted += c;
    }
  }
  return quoted + "'";
}

}  // namespace

Json ReceiptJson(const VerifyReport& report, const std::string& build) {
  Json sides = Json::array();
  bool physical = true;
  for (const SideReport& side : report.sides) {
    sides.push_back(SideJson(side));
    physical = physical && !side.emulated;
  }
  Json receipt;
  receipt["signet_receipt"] = 1;
  AddBuildFacts(build, receipt);
  receipt.update({{"holds", report.holds()},
                  {"emulated", !physical},
                  {"model", report.model},
                  {"model_digest",
                   {{"headers", report.digests.headers.Hex()},
                    {"tokenizer", report.digests.tokenizer.Hex()},
                    {"content", report.content ? Json(report.content->Hex())
                                               : Json(nullptr)}}},
                  {"prompt_text", report.prompt_text ? Json(*report.prompt_text)
                                                     : Json(nullptr)},
                  {"prompt", report.prompt},
                  {"positions", report.positions},
                  {"drawn", report.drawn},
                  {"options", OptionsJson(report.options)},
                  {"sides", std::move(sides)}});
  return receipt;
}

std::string RenewingCommand(const Receipt& receipt,
                            const std::filesystem::path& file) {
  std::string command = "signet verify " + Quoted(receipt.model);
  const auto flag = [&command](std::string_view name, std::string_view value) {
    command += fmt::format(" {} {}", name, Quoted(value));
  };
  for (const Receipt::Side& side : receipt.sides) {
    flag("--mesh", side.request.devices.empty()
                       ? side.request.mesh
                       : side.request.mesh + "@" + side.request.devices);
  }
  if (!receipt.options.devices.empty()) {
    flag("--devices", receipt.options.devices);
  }
  if (receipt.prompt_text && *receipt.prompt_text != kDefaultPrompt) {
    flag("-p", *receipt.prompt_text);
  } else if (!receipt.prompt_text) {
    flag("--ids", fmt::format("{}", fmt::join(receipt.prompt, ",")));
  }
  flag("-n", fmt::format("{}", receipt.positions));
  const PlanOptions defaults;
  if (receipt.options.context != defaults.context) {
    flag("--ctx", fmt::format("{}", receipt.options.context));
  }
  if (receipt.options.batch != defaults.batch) {
    flag("--batch", fmt::format("{}", receipt.options.batch));
  }
  if (receipt.options.kv != defaults.kv) flag("--kv", Name(receipt.options.kv));
  if (receipt.options.tp_experts != defaults.tp_experts) {
    flag("--experts", Name(receipt.options.tp_experts));
  }
  // A load onto a GPU digests unasked.
  if (receipt.content && !receipt.sides.front().devices.front().is_gpu()) {
    command += " --verify-files";
  }
  flag("--out", file.string());
  return command;
}

}  // namespace signet::evidence
