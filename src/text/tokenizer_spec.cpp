#include "text/tokenizer_spec.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "text/json_section.h"

namespace signet::text {
namespace {

using Json = nlohmann::json;

void CheckModel(const TokenizerDocument& document, const JsonSection& model,
                TokenizerSpec* spec) {
  model.Want("type", {"BPE"});
  model.WantIfSet("dropout", {0});
  model.WantIfSet("byte_fallback", {false});
  model.WantIfSet("continuing_subword_prefix", {""});
  model.WantIfSet("end_of_word_suffix", {""});
  if (!model.IsNull("ignore_merges")) {
    spec->ignore_merges = model.Bool("ignore_merges");
  }
  if (!document.has_vocab) {
    model.issues()->Invalid(model.Where("vocab"), "the value is not an object",
                            {}, "an object of tokens and their ids");
  }
  if (!document.has_merges) {
    model.issues()->Invalid(model.Where("merges"), "the value is not a list",
                            {}, "a list of pairs of tokens");
  }
}

void CheckNormalizer(const JsonSection& tokenizer, TokenizerSpec* spec) {
  if (tokenizer.IsNull("normalizer")) return;
  const JsonSection normalizer = tokenizer.Section("normalizer");
  if (!normalizer.Want("type", {"NFC", "Sequence"})) return;
  spec->normalizer = TokenizerSpec::Normalizer::kNfc;
  if (normalizer.String("type") == "NFC") return;
  const std::vector<JsonSection> steps = normalizer.List("normalizers");
  for (const JsonSection& step : steps) step.Want("type", {"NFC"});
  if (steps.size() != 1) {
    normalizer.issues()->Unsupported(
        normalizer.Where("normalizers"), "the sequence is not supported",
        fmt::format("{} steps", steps.size()), "1 step, NFC");
  }
}

void CheckPreTokenizer(const JsonSection& tokenizer, TokenizerSpec* spec) {
  const JsonSection sequence = tokenizer.Section("pre_tokenizer");
  if (!sequence.Want("type", {"Sequence"})) return;
  const std::vector<JsonSection> steps = sequence.List("pretokenizers");
  if (steps.size() != 2) {
    sequence.issues()->Unsupported(
        sequence.Where("pretokenizers"), "the sequence is not supported",
        fmt::format("{} steps", steps.size()), "2 steps, Split and ByteLevel");
    return;
  }
  const JsonSection& split = steps[0];
  if (split.Want("type", {"Split"})) {
    split.Want("behavior", {"Isolated"});
    split.Want("invert", {false});
    const JsonSection pattern = split.Section("pattern");
    if (pattern.Find("String") != nullptr) {
      pattern.issues()->Unsupported(pattern.Where("String"),
                                    "the setting is not supported", {},
                                    "a pattern of kind Regex");
    } else {
      spec->split_regex = pattern.String("Regex");
    }
  }
  const JsonSection& byte_level = steps[1];
  if (byte_level.Want("type", {"ByteLevel"})) {
    byte_level.Want("add_prefix_space", {false});
    byte_level.Want("use_regex", {false});
  }
}

// A post-processor may stand there as long as it adds no token.
void CheckPostProcessor(const JsonSection& processor) {
  if (!processor.Want("type",
                      {"ByteLevel", "TemplateProcessing", "Sequence"})) {
    return;
  }
  const std::string type = processor.String("type");
  if (type == "Sequence") {
    for (const JsonSection& step : processor.List("processors")) {
      CheckPostProcessor(step);
    }
  } else if (type == "TemplateProcessing") {
    const std::vector<JsonSection> pieces = processor.List("single");
    for (const JsonSection& piece : pieces) {
      if (piece.Find("SpecialToken") == nullptr) continue;
      piece.issues()->Unsupported(piece.Where("SpecialToken"),
                                  "a template that adds a token is not "
                                  "supported");
    }
    if (pieces.size() != 1 || pieces[0].IsNull("Sequence")) {
      processor.issues()->Unsupported(
          processor.Where("single"), "the template is not supported",
          fmt::format("{} pieces", pieces.size()), "1 piece, the sequence A");
    }
  }
}

void CheckConfig(const JsonSection& config, TokenizerSpec* spec) {
  config.WantIfSet("add_bos_token", {false});
  config.WantIfSet("add_eos_token", {false});
  config.WantIfSet("add_prefix_space", {false});
  const Json* eos = config.Find("eos_token");
  if (eos == nullptr || eos->is_null()) return;
  spec->eos_token = eos->is_object()
                        ? config.Section("eos_token").String("content")
                        : config.String("eos_token");
}

}  // namespace

TokenizerSpec CheckTokenizerSpec(const TokenizerDocument& tokenizer_document,
                                 const TokenizerDocument& config_document,
                                 FileIssues* issues) {
  TokenizerSpec spec;
  const JsonSection tokenizer(&tokenizer_document.rest,
                              fmt::format("{}:", kTokenizerFile), issues);
  const JsonSection config(&config_document.rest,
                           fmt::format("{}:", kTokenizerConfigFile), issues);
  tokenizer.WantIfSet("version", {"1.0"});
  tokenizer.WantIfSet("truncation", {nullptr});
  tokenizer.WantIfSet("padding", {nullptr});
  CheckModel(tokenizer_document, tokenizer.Section("model"), &spec);
  CheckNormalizer(tokenizer, &spec);
  CheckPreTokenizer(tokenizer, &spec);
  if (!tokenizer.IsNull("post_processor")) {
    CheckPostProcessor(tokenizer.Section("post_processor"));
  }
  tokenizer.Section("decoder").Want("type", {"ByteLevel"});
  CheckConfig(config, &spec);
  spec.added_tokens = ReadAddedTokens(tokenizer, config);
  return spec;
}

}  // namespace signet::text
