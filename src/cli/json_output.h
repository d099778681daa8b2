#pragma once
// The JSON objects the commands print, each on one line. docs/json.md lists
// their keys; keys are only ever added.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "signet/devices.h"
#include "signet/engine.h"
#include "signet/error.h"
#include "signet/session.h"
#include "signet/source.h"

namespace signet::cli {

/// Paths and names of files need not be UTF-8; an object is printed anyway.
std::string JsonLine(const nlohmann::ordered_json& json);

/// `{"rejections": [...]}` or `{"failure": {...}}`.
std::string ErrorJson(const Error& error);

/// The printed name, as in JSON.
std::string_view Name(FailureKind kind);

/// What a run made: the generated ids, the text and how it ended.
struct Generated {
  std::vector<int32_t> tokens;
  std::string text;
  EndEvent end;  // its `text` is empty: it is the end of `text` above
};

/// `generated` is not empty; the keys of a single run are of its first entry.
/// `is_list`: with the key `results`, of every entry.
std::string RunJson(const std::vector<Generated>& generated, bool is_list,
                    const Model& model,
                    const std::vector<std::string>& devices);

/// `plan_json`, with the key `rejections` if the plan does not fit.
std::string PlanJson(const std::string& plan_json,
                     const Result<void>& admission);

std::string ProgramJson(const std::string& contract, int rank,
                        std::string_view shape, const std::string& text);

std::string ModelsJson(const std::vector<ModelListing>& models,
                       const SearchPaths& paths);

std::string DevicesJson(const DeviceListing& devices);

std::string SynthJson(const std::string& folder, const std::string& summary);

}  // namespace signet::cli
