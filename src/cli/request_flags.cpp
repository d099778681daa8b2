#include "cli/request_flags.h"

#include <limits>

#include "cli/flags.h"

namespace signet::cli {

void RequestFlags::Add(CLI::App& app) {
  AddInteger(app, "-n",
             "Tokens to generate at most (default 128; in a chat, what the "
             "context holds)",
             1, std::numeric_limits<int64_t>::max(),
             [this](int64_t value) { max_tokens_ = value; });
  app.add_flag("--ignore-eos", ignore_eos_, "Do not end at a stop token");
  AddFlag(app, "--stop", "TEXT",
          "End before this text; may be given several times",
          [this](const std::string& value) -> std::string {
            if (value.empty()) return "a text";
            stops_.push_back(value);
            return {};
          })
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  AddFlag(app, "--temp", "T", "Temperature; 0: the likeliest token",
          [this](const std::string& value) -> std::string {
            temperature_ = ParseNumber(value);
            if (temperature_ && *temperature_ >= 0) return {};
            return "a finite number, at least 0";
          });
  AddFlag(app, "--top-p", "P",
          "The likeliest tokens of together this probability; 1: all",
          [this](const std::string& value) -> std::string {
            top_p_ = ParseNumber(value);
            if (top_p_ && *top_p_ > 0 && *top_p_ <= 1) return {};
            return "a number above 0, at most 1";
          });
  AddInteger(app, "--top-k", "The K likeliest tokens; 0: all", 0,
             std::numeric_limits<int32_t>::max(),
             [this](int64_t value) { top_k_ = static_cast<int32_t>(value); });
  AddSeed(app, "Seed of the sampling (default 0)",
          [this](uint64_t value) { seed_ = value; });
}

Request RequestFlags::Make(const Model& model, int64_t max_tokens) const {
  Request request;
  request.max_tokens = max_tokens_.value_or(max_tokens);
  request.ignore_eos = ignore_eos_;
  request.stops = stops_;
  request.sampling = model.default_sampling();
  if (temperature_) request.sampling.temperature = *temperature_;
  if (top_p_) request.sampling.top_p = *top_p_;
  if (top_k_) request.sampling.top_k = *top_k_;
  if (seed_) request.sampling.seed = *seed_;
  return request;
}

}  // namespace signet::cli
