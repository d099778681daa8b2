// Every field of a config that the engine reads, set to every kind of value a
// file can hold, with the weights as they were and with headers that agree: a
// refusal or a plan, never a signal, and no memory to speak of.

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "model/config.h"
#include "model/synth.h"
#include "signet/plan.h"
#include "signet/source.h"
#include "support/running_model.h"
#include "support/sparse_checkpoint.h"
#include "support/temporary_folder.h"
#include "support/tiny_checkpoint.h"

namespace signet::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// The files that read a config, and a nested object of it.
constexpr const char* kReaders[] = {"src/model/config.cpp",
                                    "src/model/generation_config.cpp",
                                    "src/model/manifest_builder.cpp"};

const std::vector<std::string> kConfigFields = {
    "attention_bias",
    "attn_output_gate",
    "decoder_sparse_step",
    "eos_token_id",
    "full_attention_interval",
    "head_dim",
    "hidden_act",
    "hidden_size",
    "intermediate_size",
    "layer_types",
    "linear_conv_kernel_dim",
    "linear_key_head_dim",
    "linear_num_key_heads",
    "linear_num_value_heads",
    "linear_value_head_dim",
    "max_position_embeddings",
    "mlp_only_layers",
    "model_type",
    "moe_intermediate_size",
    "norm_topk_prob",
    "num_attention_heads",
    "num_experts",
    "num_experts_per_tok",
    "num_hidden_layers",
    "num_key_value_heads",
    "output_gate_type",
    "partial_rotary_factor",
    "quantization_config",
    "rms_norm_eps",
    "rope_parameters",
    "rope_scaling",
    "rope_theta",
    "shared_expert_intermediate_size",
    "text_config",
    "tie_word_embeddings",
    "use_sliding_window",
    "vocab_size"};
const std::vector<std::string> kRopeFields = {
    "partial_rotary_factor", "rope_theta", "rope_type", "type"};
const std::vector<std::string> kGenerationFields = {
    "do_sample", "eos_token_id", "temperature", "top_k", "top_p"};

// As JSON text, so that numbers no parser type holds are among them.
const std::vector<std::string> kValues = {"null",
                                          "true",
                                          "false",
                                          "0",
                                          "-0",
                                          "1",
                                          "2",
                                          "-1",
                                          "0.0",
                                          "0.5",
                                          "1.5",
                                          "-1e308",
                                          "1e308",
                                          "1e-320",
                                          "1023",
                                          "1024",
                                          "4096",
                                          "65536",
                                          "2147483647",
                                          "2147483648",
                                          "4294967296",
                                          "9223372036854775807",
                                          "9223372036854775808",
                                          "18446744073709551615",
                                          "18446744073709551616",
                                          "-9223372036854775808",
                                          "-9223372036854775809",
                                          "1e400",
                                          "\"\"",
                                          "\"NaN\"",
                                          "\"8\"",
                                          "\"linear_attention\"",
                                          "\"\\u0000\"",
                                          "[]",
                                          "[0]",
                                          "[-1]",
                                          "[1,2,3]",
                                          "[[]]",
                                          "[null]",
                                          "[18446744073709551615]",
                                          "[\"full_attention\"]",
                                          "{}",
                                          "{\"a\":{}}",
                                          "{\"rope_theta\":\"x\"}",
                                          "{\"quant_method\":[1]}"};

fs::path Folder() {
  const fs::path folder = TemporaryFolder() / "fields";
  if (!fs::exists(folder))
    ValueOrDie(WriteTinyCheckpoint("moe_awkward", folder));
  return folder;
}

json BaseConfig() { return json::parse(TinyCheckpointConfig("moe_awkward")); }

// Unset for a plan, else what refused it.
std::optional<Error> Refusal(const fs::path& folder) {
  const Result<Source> source = Source::Open(folder.string(), {});
  if (!source) return source.error();
  const Result<Plan> plan = Plan::Make(*source, {.devices = "cpu",
                                                 .context = 32,
                                                 .page_tokens = 8,
                                                 .prefill_chunks = {8}});
  if (!plan) return plan.error();
  EXPECT_FALSE(plan->Text().value().empty());
  const Result<void> admission = plan->Admission();
  if (!admission) return admission.error();
  return std::nullopt;
}

void ExpectRefusedOrPlanned(const fs::path& folder) {
  const std::optional<Error> refusal = Refusal(folder);
  if (!refusal) return;
  const auto* rejections = std::get_if<Rejections>(&*refusal);
  ASSERT_NE(rejections, nullptr) << Describe(*refusal);
  for (const Rejection& rejection : rejections->list()) {
    EXPECT_FALSE(rejection.message.empty());
    EXPECT_FALSE(rejection.where.empty()) << rejection.message;
    EXPECT_LT(Describe(rejection).size(), 2000u);
  }
}

// What this process has ever held at once.
int64_t PeakMib() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss >> 10;
}

/// Replaces one value of a config by its text, or takes it out.
std::string With(json config, const json::json_pointer& at,
                 const std::string& value) {
  constexpr const char* kMark = "\"@here@\"";
  config[at] = "@here@";
  std::string text = config.dump();
  const size_t place = text.find(kMark);
  return text.replace(place, std::string(kMark).size(), value);
}

std::string Without(json config, const json::json_pointer& at) {
  config[at.parent_pointer()].erase(at.back());
  return config.dump();
}

void Write(const fs::path& file, const std::string& text) {
  std::ofstream(file, std::ios::binary) << text;
}

class HostileConfig : public ::testing::Test {
 protected:
  // Tries every value in every field of `file`.
  void TryAll(const std::string& file, const json& base,
              const std::vector<json::json_pointer>& fields) {
    const fs::path path = Folder() / file;
    for (const json::json_pointer& at : fields) {
      SCOPED_TRACE(file + " " + at.to_string());
      Write(path, Without(base, at));
      ExpectRefusedOrPlanned(Folder());
      for (const std::string& value : kValues) {
        SCOPED_TRACE(value);
        Write(path, With(base, at, value));
        ExpectRefusedOrPlanned(Folder());
        if (HasFailure()) return;
      }
    }
    Write(path, base.dump());
    EXPECT_EQ(Refusal(Folder()), std::nullopt) << "the file as it was";
  }
};

std::vector<json::json_pointer> Pointers(
    const std::string& prefix, const std::vector<std::string>& names) {
  std::vector<json::json_pointer> pointers;
  for (const std::string& name : names) pointers.emplace_back(prefix + name);
  return pointers;
}

TEST_F(HostileConfig, EveryFieldThatIsReadIsListedHere) {
  std::set<std::string> listed(kConfigFields.begin(), kConfigFields.end());
  listed.insert(kRopeFields.begin(), kRopeFields.end());
  listed.insert(kGenerationFields.begin(), kGenerationFields.end());
  listed.insert("quant_method");  // among the values
  const std::regex read(
      "(?:Positive|PositiveOr|Number|BoolOr|StringOr|Ids|Get|Has|find|contains|"
      "kKey =|rope_key =|check_rows|\\?)\\s*\\(?\\s*\"([a-z_0-9]+)\"");
  std::set<std::string> found;
  for (const char* reader : kReaders) {
    std::ifstream file(fs::path(SIGNET_SOURCE_DIR) / reader);
    const std::string text(std::istreambuf_iterator<char>(file), {});
    for (std::sregex_iterator it(text.begin(), text.end(), read), end;
         it != end; ++it) {
      found.insert((*it)[1]);
    }
  }
  EXPECT_GT(found.size(), 35u);
  for (const std::string& name : found) {
    EXPECT_TRUE(listed.contains(name)) << name;
  }
}

TEST_F(HostileConfig, A1_EveryValueOfEveryFieldIsRefusedOrPlanned) {
  EXPECT_EQ(Refusal(Folder()), std::nullopt);
  const int64_t before = PeakMib();
  TryAll("config.json", BaseConfig(), Pointers("/", kConfigFields));
  TryAll("config.json", BaseConfig(),
         Pointers("/rope_parameters/", kRopeFields));
  const json generation = {{"do_sample", true}};
  TryAll("generation_config.json", generation,
         Pointers("/", kGenerationFields));
  EXPECT_LT(PeakMib() - before, 64);
}

// The same inside text_config, as the published checkpoints have it.
TEST_F(HostileConfig, A1_NestedFieldsAreRefusedOrPlanned) {
  json text = BaseConfig();
  json nested = {{"model_type", "qwen3_5_moe"}, {"text_config", text}};
  TryAll("config.json", nested, Pointers("/text_config/", kConfigFields));
  Write(Folder() / "config.json", BaseConfig().dump());
}

// Sizes that nothing contradicts: the files are holes of the right length.
TEST_F(HostileConfig, P4_FilesThatAgreeWithALargeFieldAreRefusedOrPlanned) {
  constexpr int64_t kLargestFile = int64_t{1} << 42;
  constexpr int64_t kSizes[] = {1,
                                2,
                                3,
                                7,
                                255,
                                1023,
                                4096,
                                1 << 16,
                                1 << 20,
                                1 << 24,
                                (int64_t{1} << 31) - 1};
  const fs::path folder = TemporaryFolder() / "agreeing";
  const int64_t before = PeakMib();
  int planned = 0;
  int refused = 0;
  for (const std::string& field : kConfigFields) {
    json config = BaseConfig();
    config["num_hidden_layers"] = 2;
    config["layer_types"] = {"linear_attention", "full_attention"};
    if (!config.contains(field) || !config[field].is_number_unsigned())
      continue;
    for (const int64_t size : kSizes) {
      SCOPED_TRACE(field + " " + std::to_string(size));
      config[field] = size;
      if (field == "num_hidden_layers") config.erase("layer_types");
      const std::string text = config.dump();
      if (!model::ParseConfig(text, "config.json")) continue;
      int64_t bytes = 0;
      for (const SparseTensor& tensor :
           SparseTensors(text, SparseParts::kLanguage)) {
        int64_t size_bytes = 2;
        for (const int64_t dim : tensor.shape) size_bytes *= dim;
        bytes = std::max(bytes, size_bytes);
      }
      if (bytes > kLargestFile) continue;  // no file system here holds it
      fs::remove_all(folder);
      WriteSparseCheckpoint(folder, text, SparseParts::kLanguage, 1);
      ExpectRefusedOrPlanned(folder);
      ++(Refusal(folder) ? refused : planned);
      if (HasFailure()) return;
    }
  }
  fs::remove_all(folder);
  EXPECT_GT(planned, 40);
  EXPECT_GT(refused, 5);
  EXPECT_LT(PeakMib() - before, 512);
}

}  // namespace
}  // namespace signet::testing
