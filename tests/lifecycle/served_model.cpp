#include "lifecycle/served_model.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "model/synth.h"
#include "support/temporary_folder.h"
#include "support/tiny_checkpoint.h"

namespace signet::testing {

namespace fs = std::filesystem;

fs::path LifecycleCheckpoint() {
  const fs::path folder = TemporaryFolder() / "lifecycle";
  if (fs::exists(folder)) return folder;
  nlohmann::json config =
      nlohmann::json::parse(TinyCheckpointConfig("moe_awkward"));
  config["num_experts"] = 8;
  config["num_experts_per_tok"] = 2;
  config["num_hidden_layers"] = 2;
  config["layer_types"] = {"linear_attention", "full_attention"};
  const fs::path path = folder.string() + ".json";
  std::ofstream(path) << config.dump();
  ValueOrDie(model::Synthesize(
      {.config = path.string(), .folder = folder, .seed = 5, .threads = 1}));
  return folder;
}

Plan LifecyclePlan(const std::string& mesh) {
  const Source source =
      ValueOrDie(Source::Open(LifecycleCheckpoint().string(), {}));
  return ValueOrDie(Plan::Make(source, {.mesh = mesh,
                                        .devices = "cpu",
                                        .context = 32,
                                        .batch = 2,
                                        .page_tokens = 8,
                                        .prefill_chunks = {8}}));
}

std::vector<Request> LifecycleRequests(size_t count, int64_t max_tokens) {
  std::vector<Request> requests;
  for (size_t i = 0; i < count; ++i) {
    std::vector<int32_t> prompt;
    for (int32_t t = 0; t < 7; ++t) {
      prompt.push_back((37 * t + 11 * static_cast<int32_t>(i)) % 300);
    }
    Request request = {.prompt = std::move(prompt), .max_tokens = max_tokens};
    request.sampling = {.temperature = 1.5f, .seed = 9};
    request.sequence = static_cast<uint32_t>(i);
    request.ignore_eos = true;
    requests.push_back(std::move(request));
  }
  return requests;
}

std::vector<std::vector<int32_t>> Answer(Session& session,
                                         const std::vector<Request>& requests) {
  HearingSink sink(requests.size());
  ValueOrDie(session.Generate(requests, sink));
  std::vector<std::vector<int32_t>> ids;
  for (const Heard& heard : sink.heard) {
    EXPECT_EQ(heard.ends, 1);
    EXPECT_EQ(heard.finish, Finish::kLength);
    ids.push_back(heard.ids);
  }
  return ids;
}

}  // namespace signet::testing
