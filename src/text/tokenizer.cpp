#include "text/tokenizer.h"

#include <fmt/format.h>

#include <limits>
#include <optional>
#include <utility>

#include "text/bpe.h"
#include "text/bpe_tables.h"
#include "text/file_issues.h"
#include "text/literal_matcher.h"
#include "text/nfc.h"
#include "text/splitter.h"
#include "text/tokenizer_document.h"
#include "text/tokenizer_spec.h"
#include "text/utf8.h"
#include "text/vocabulary.h"

namespace signet::text {
namespace {

constexpr size_t kMaxTextBytes = std::numeric_limits<int32_t>::max();

std::optional<int32_t> FindToken(const std::string& content,
                                 const std::vector<AddedToken>& added,
                                 const Vocabulary& vocabulary) {
  for (const AddedToken& token : added) {
    if (token.content == content) return token.id;
  }
  return vocabulary.Find(content);
}

std::vector<AddedToken> NotSpecial(std::vector<AddedToken> tokens) {
  std::erase_if(tokens, [](const AddedToken& token) { return token.special; });
  return tokens;
}

}  // namespace

struct Tokenizer::Tables {
  Vocabulary vocabulary;
  Bpe bpe;
  LiteralMatcher added;
  LiteralMatcher added_not_special;
  std::unique_ptr<const Splitter> splitter;
  TokenizerSpec::Normalizer normalizer;
  bool ignore_merges;
  std::vector<int32_t> eos_ids;

  // The tokens of a text without added tokens; false: too much work.
  bool EncodeSegment(std::string_view segment, std::vector<int32_t>* ids) const;
};

Tokenizer::Tokenizer(std::unique_ptr<const Tables> tables)
    : tables_(std::move(tables)) {}

Tokenizer::~Tokenizer() = default;

Result<std::shared_ptr<const Tokenizer>> Tokenizer::Parse(
    std::string_view tokenizer_json, std::string_view tokenizer_config_json) {
  FileIssues issues;
  const TokenizerDocument document =
      ReadTokenizerDocument(kTokenizerFile, tokenizer_json, &issues);
  TokenizerDocument config;
  if (!tokenizer_config_json.empty()) {
    config = ReadTokenizerDocument(kTokenizerConfigFile, tokenizer_config_json,
                                   &issues);
  }
  if (!document.rest.is_object() || !config.rest.is_object()) {
    return issues.Take();
  }
  TokenizerSpec spec = CheckTokenizerSpec(document, config, &issues);
  std::unique_ptr<const Splitter> splitter;
  if (issues.empty()) {
    splitter = Splitter::Compile(
        spec.split_regex,
        "tokenizer.json: pre_tokenizer.pretokenizers[0].pattern.Regex",
        &issues);
  }
  Vocabulary vocabulary =
      Vocabulary::Make(document.vocab, spec.added_tokens, &issues);
  // A fault of the vocabulary would come back as one of every merge.
  if (!issues.empty()) return issues.Take();
  std::optional<Bpe> bpe = MakeBpe(document.merges, vocabulary, &issues);
  std::vector<int32_t> eos_ids;
  if (spec.eos_token) {
    const std::optional<int32_t> eos =
        FindToken(*spec.eos_token, spec.added_tokens, vocabulary);
    if (eos) {
      eos_ids.push_back(*eos);
    } else {
      issues.Invalid("tokenizer_config.json: eos_token",
                     "the token is not in the vocabulary",
                     Quoted(*spec.eos_token));
    }
  }
  if (!issues.empty()) return issues.Take();
  auto tables = std::make_unique<const Tables>(Tables{
      std::move(vocabulary), *std::move(bpe), LiteralMatcher(spec.added_tokens),
      LiteralMatcher(NotSpecial(spec.added_tokens)), std::move(splitter),
      spec.normalizer, spec.ignore_merges, std::move(eos_ids)});
  return std::shared_ptr<const Tokenizer>(new Tokenizer(std::move(tables)));
}

std::optional<int32_t> Tokenizer::FindAdded(std::string_view name) const {
  const LiteralMatcher::Match match = tables_->added.Find(name, 0);
  if (match.length == 0 || match.length != name.size()) return std::nullopt;
  return match.id;
}

Result<std::vector<int32_t>> Tokenizer::Encode(std::string_view text,
                                               Specials specials) const {
  if (text.size() > kMaxTextBytes) {
    return Reject(RejectionCode::kRequestInvalid, "text",
                  "the text is too long", fmt::format("{} bytes", text.size()),
                  fmt::format("at most {} bytes", kMaxTextBytes));
  }
  const size_t invalid = FindInvalidUtf8(text);
  if (invalid != std::string_view::npos) {
    return Reject(RejectionCode::kRequestInvalid,
                  fmt::format("text byte {}", invalid), "the text is not UTF-8",
                  fmt::format("0x{:02X}", static_cast<uint8_t>(text[invalid])));
  }
  const LiteralMatcher& added = specials == Specials::kAreTokens
                                    ? tables_->added
                                    : tables_->added_not_special;
  std::vector<int32_t> ids;
  size_t from = 0;
  while (from < text.size()) {
    const LiteralMatcher::Match match = added.Find(text, from);
    const std::string_view segment = text.substr(from, match.begin - from);
    if (!tables_->EncodeSegment(segment, &ids)) {
      return Reject(RejectionCode::kRequestInvalid,
                    fmt::format("text byte {}", from),
                    "the pre-tokenizer regex exceeds its match limit");
    }
    if (match.length > 0) ids.push_back(match.id);
    from = match.begin + match.length;
  }
  return ids;
}

bool Tokenizer::Tables::EncodeSegment(std::string_view segment,
                                      std::vector<int32_t>* ids) const {
  if (segment.empty()) return true;
  std::string storage;
  if (normalizer == TokenizerSpec::Normalizer::kNfc) {
    segment = ToNfc(segment, &storage);
  }
  std::vector<size_t> ends;
  if (!splitter->Split(segment, &ends)) return false;
  size_t begin = 0;
  for (const size_t end : ends) {
    const std::string_view piece = segment.substr(begin, end - begin);
    begin = end;
    const std::optional<int32_t> whole =
        ignore_merges ? vocabulary.Find(piece) : std::nullopt;
    if (whole) {
      ids->push_back(*whole);
    } else {
      bpe.Encode(piece, ids);
    }
  }
  return true;
}

std::string_view Tokenizer::TokenBytes(int32_t id) const {
  return tables_->vocabulary.Bytes(id);
}

bool Tokenizer::HasToken(int32_t id) const {
  return !tables_->vocabulary.Bytes(id).empty();
}

int32_t Tokenizer::id_bound() const { return tables_->vocabulary.id_bound(); }

bool Tokenizer::IsSpecial(int32_t id) const {
  return tables_->vocabulary.IsSpecial(id);
}

std::span<const int32_t> Tokenizer::eos_ids() const { return tables_->eos_ids; }

}  // namespace signet::text
