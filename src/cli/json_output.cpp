#include "cli/json_output.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <variant>

namespace signet::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string Line(const Json& json) { return JsonLine(json); }

Json ListOf(const Rejections& rejections) {
  Json list = Json::array();
  for (const Rejection& rejection : rejections.list()) {
    list.push_back({{"code", signet::Name(rejection.code)},
                    {"where", rejection.where},
                    {"got", rejection.got},
                    {"want", rejection.want},
                    {"message", rejection.message}});
  }
  return list;
}

Json ResultOf(const Generated& generated) {
  return {{"tokens", generated.tokens},
          {"text", generated.text},
          {"finish", signet::Name(generated.end.finish)},
          {"prompt_tokens", generated.end.prompt_tokens},
          {"ttft_ms", generated.end.first_token_ms},
          {"decode_tok_s", generated.end.decode_tokens_per_second}};
}

Json PathOrNull(const std::optional<std::filesystem::path>& path) {
  return path ? Json(path->string()) : Json(nullptr);
}

}  // namespace

std::string JsonLine(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + '\n';
}

std::string_view Name(FailureKind kind) {
  switch (kind) {
    case FailureKind::kIo:
      return "io";
    case FailureKind::kChangedFile:
      return "changed_file";
    case FailureKind::kMemory:
      return "memory";
    case FailureKind::kDevice:
      return "device";
    case FailureKind::kNumeric:
      return "numeric";
    case FailureKind::kAborted:
      return "aborted";
    case FailureKind::kState:
      return "state";
  }
  return "";
}

std::string ErrorJson(const Error& error) {
  if (const auto* rejections = std::get_if<Rejections>(&error)) {
    return Line({{"rejections", ListOf(*rejections)}});
  }
  const Failure& failure = std::get<Failure>(error);
  return Line({{"failure",
                {{"kind", Name(failure.kind)},
                 {"where", failure.where},
                 {"message", failure.message}}}});
}

std::string RunJson(const std::vector<Generated>& generated, bool is_list,
                    const Model& model,
                    const std::vector<std::string>& devices) {
  Json object = ResultOf(generated.front());
  object["contract"] = model.contract_id();
  object["content"] =
      model.content_digest() ? Json(*model.content_digest()) : Json(nullptr);
  object["devices"] = devices;
  if (is_list) {
    Json& results = object["results"] = Json::array();
    for (const Generated& one : generated) results.push_back(ResultOf(one));
  }
  return Line(object);
}

std::string PlanJson(const std::string& plan_json,
                     const Result<void>& admission) {
  Json plan = Json::parse(plan_json);
  if (!admission.has_value()) {
    const Json error = Json::parse(ErrorJson(admission.error()));
    plan.update(error);
  }
  return Line(plan);
}

std::string ProgramJson(const std::string& contract, int rank,
                        std::string_view shape, const std::string& text) {
  return Line({{"contract", contract},
               {"rank", rank},
               {"shape", shape},
               {"text", text}});
}

std::string ModelsJson(const std::vector<ModelListing>& models,
                       const SearchPaths& paths) {
  Json list = Json::array();
  for (const ModelListing& model : models) {
    list.push_back({{"name", model.name},
                    {"hub_name", model.hub_name},
                    {"folder", PathOrNull(model.folder)}});
  }
  return Line({{"models", list},
               {"searched",
                {{"models", PathOrNull(paths.models)},
                 {"hub", PathOrNull(paths.hub)},
                 {"demo", paths.demo.string()}}}});
}

std::string DevicesJson(const DeviceListing& devices) {
  const CpuListing& cpu = devices.cpu;
  Json gpus = Json::array();
  for (const GpuListing& gpu : devices.gpus) {
    gpus.push_back({{"name", gpu.name},
                    {"uuid", gpu.uuid},
                    {"model", gpu.model},
                    {"pci", gpu.pci},
                    {"instruction_set", gpu.instruction_set},
                    {"memory_bytes", gpu.memory_bytes},
                    {"free_bytes", gpu.free_bytes}});
  }
  Json links = Json::array();
  for (const LinkListing& link : devices.links) {
    links.push_back(
        {{"first", link.first}, {"second", link.second}, {"kind", link.kind}});
  }
  const auto or_null = [](const std::string& text) {
    return text.empty() ? Json(nullptr) : Json(text);
  };
  return Line({{"cpu",
                {{"name", cpu.name},
                 {"uuid", cpu.uuid},
                 {"model", cpu.model},
                 {"instruction_set", cpu.instruction_set},
                 {"cores", cpu.cores},
                 {"usable_cores", cpu.usable_cores},
                 {"memory_bytes", cpu.memory_bytes},
                 {"limit_bytes", cpu.limit_bytes},
                 {"free_bytes", cpu.free_bytes}}},
               {"gpus", gpus},
               {"links", links},
               {"driver", or_null(devices.driver)},
               {"no_gpu", or_null(devices.no_gpu)}});
}

std::string SynthJson(const std::string& folder, const std::string& summary) {
  return Line({{"folder", folder}, {"summary", summary}});
}

}  // namespace signet::cli
