#include "engine/letter.h"

#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

namespace signet {
namespace {

enum class Content : uint64_t { kFacts, kRejections, kFailure };

class Writer {
 public:
  void Number(uint64_t value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  void Text(std::string_view text) {
    Number(text.size());
    bytes_ += text;
  }
  std::string Take() && { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}
  uint64_t Number() {
    uint64_t value = 0;
    if (bytes_.size() < sizeof(value)) {
      good_ = false;
      return 0;
    }
    std::memcpy(&value, bytes_.data(), sizeof(value));
    bytes_.remove_prefix(sizeof(value));
    return value;
  }
  std::string Text() {
    const uint64_t size = Number();
    if (size > bytes_.size()) {
      good_ = false;
      return {};
    }
    std::string text(bytes_.substr(0, size));
    bytes_.remove_prefix(size);
    return text;
  }
  bool good() const { return good_; }
  bool done() const { return good_ && bytes_.empty(); }

 private:
  std::string_view bytes_;
  bool good_ = true;
};

}  // namespace

std::string Write(const Letter& letter) {
  Writer out;
  out.Text(letter.phase);
  if (!letter.error) {
    out.Number(static_cast<uint64_t>(Content::kFacts));
    for (const auto& [name, value] : letter.facts) {
      out.Text(name);
      out.Text(value);
    }
  } else if (const auto* rejections = std::get_if<Rejections>(&*letter.error)) {
    out.Number(static_cast<uint64_t>(Content::kRejections));
    for (const Rejection& rejection : rejections->list()) {
      out.Number(static_cast<uint64_t>(rejection.code));
      out.Text(rejection.where);
      out.Text(rejection.got);
      out.Text(rejection.want);
      out.Text(rejection.message);
    }
  } else {
    const auto& failure = std::get<Failure>(*letter.error);
    out.Number(static_cast<uint64_t>(Content::kFailure));
    out.Number(static_cast<uint64_t>(failure.kind));
    out.Text(failure.where);
    out.Text(failure.message);
  }
  return std::move(out).Take();
}

std::optional<Letter> ReadLetter(std::string_view bytes) {
  Reader in(bytes);
  Letter letter;
  letter.phase = in.Text();
  const uint64_t content = in.Number();
  if (content == static_cast<uint64_t>(Content::kFacts)) {
    while (in.good() && !in.done()) {
      std::string name = in.Text();
      letter.facts.emplace_back(std::move(name), in.Text());
    }
  } else if (content == static_cast<uint64_t>(Content::kRejections)) {
    RejectionList list;
    while (in.good() && !in.done()) {
      const uint64_t code = in.Number();
      if (code >= static_cast<uint64_t>(kNumRejectionCodes)) return {};
      Rejection rejection{.code = static_cast<RejectionCode>(code)};
      rejection.where = in.Text();
      rejection.got = in.Text();
      rejection.want = in.Text();
      rejection.message = in.Text();
      list.Add(std::move(rejection));
    }
    if (list.empty()) return std::nullopt;
    letter.error = list.Take().value();
  } else if (content == static_cast<uint64_t>(Content::kFailure)) {
    const uint64_t kind = in.Number();
    if (kind > static_cast<uint64_t>(FailureKind::kState)) return std::nullopt;
    Failure failure{.kind = static_cast<FailureKind>(kind)};
    failure.where = in.Text();
    failure.message = in.Text();
    letter.error = std::move(failure);
  } else {
    return std::nullopt;
  }
  if (!in.done()) return std::nullopt;
  return letter;
}

}  // namespace signet
