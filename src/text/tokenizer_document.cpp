#include "text/tokenizer_document.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <utility>

namespace signet::text {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxFileBytes = size_t{128} << 20;
constexpr size_t kMaxDepth = 32;
constexpr size_t kMaxDomNodes = size_t{4} << 20;

// Whether a key can stand in a report as it is.
bool IsPlain(std::string_view key) {
  return key.size() <= 32 && std::ranges::all_of(key, [](char c) {
           return (c >= 'a' && c <= 'z') || c == '_';
         });
}

// Receives the events of nlohmann's parser. A false return ends the parse.
class Reader {
 public:
  Reader(std::string_view file, TokenizerDocument* document, FileIssues* issues)
      : file_(file), document_(document), issues_(issues) {}

  // NOLINTBEGIN(readability-identifier-naming): the parser's names.
  bool null() { return Value(nullptr); }
  bool boolean(bool value) { return Value(value); }
  bool number_integer(int64_t value) { return Value(value); }
  bool number_unsigned(uint64_t value) { return Value(value); }
  bool number_float(double value, const std::string&) { return Value(value); }
  bool string(std::string& value) { return Value(std::move(value)); }
  bool binary(Json::binary_t&) { return false; }  // never in JSON text
  bool start_object(size_t) { return Open(Json::value_t::object); }
  bool end_object() { return Close(); }
  bool start_array(size_t) { return Open(Json::value_t::array); }
  bool end_array() { return Close(); }
  bool key(std::string& name) {
    frames_.back().key = std::move(name);
    return true;
  }
  bool parse_error(size_t position, const std::string&,
                   const Json::exception& error) {
    issues_->Invalid(fmt::format("{}: byte {}", file_, position),
                     "the file is not JSON", Quoted(error.what()));
    return false;
  }
  // NOLINTEND(readability-identifier-naming)

 private:
  struct Frame {
    enum class Kind { kDom, kVocab, kMerges, kMergePair, kSkipped };
    Kind kind;
    Json* dom;        // of a kDom
    std::string key;  // the member being read, in an object
    size_t index;     // the element being read, in an array
  };

  std::string Where() const {
    std::string where = file_ + ":";
    std::string_view separator = " ";
    for (const Frame& frame : frames_) {
      const bool is_list = frame.kind == Frame::Kind::kMerges ||
                           frame.kind == Frame::Kind::kMergePair ||
                           (frame.dom != nullptr && frame.dom->is_array());
      if (is_list) {
        where += fmt::format("[{}]", frame.index);
      } else if (frame.kind == Frame::Kind::kVocab) {
        where += fmt::format("[{}]", Quoted(frame.key));
      } else {
        where += separator;
        where += IsPlain(frame.key) ? frame.key : Quoted(frame.key);
      }
      separator = ".";
    }
    return where;
  }

  bool Value(Json&& value) {
    if (frames_.empty()) {
      document_->rest = std::move(value);
      return true;
    }
    Frame& frame = frames_.back();
    switch (frame.kind) {
      case Frame::Kind::kDom:
        if (Insert(std::move(value)) == nullptr) return false;
        break;
      case Frame::Kind::kVocab:
        AddVocab(value);
        break;
      case Frame::Kind::kMerges:
        AddMergeLine(value);
        break;
      case Frame::Kind::kMergePair:
        AddMergePart(value);
        break;
      case Frame::Kind::kSkipped:
        break;
    }
    ++frame.index;
    return true;
  }

  bool Open(Json::value_t container) {
    if (frames_.size() == kMaxDepth) {
      issues_->Invalid(Where(), "the file is nested too deeply", {},
                       fmt::format("at most {} levels", kMaxDepth));
      return false;
    }
    if (frames_.empty()) {
      document_->rest = Json(container);
      Push(Frame::Kind::kDom, &document_->rest);
      return true;
    }
    const Frame& parent = frames_.back();
    switch (parent.kind) {
      case Frame::Kind::kDom:
        return OpenMember(container);
      case Frame::Kind::kMerges:
        if (container == Json::value_t::array) {
          pair_.clear();
          Push(Frame::Kind::kMergePair);
          return true;
        }
        AddMergeLine(Json(container));
        break;
      case Frame::Kind::kVocab:
        AddVocab(Json(container));
        break;
      case Frame::Kind::kMergePair:
        AddMergePart(Json(container));
        break;
      case Frame::Kind::kSkipped:
        break;
    }
    Push(Frame::Kind::kSkipped);
    return true;
  }

  bool OpenMember(Json::value_t container) {
    const bool in_model = frames_.size() == 2 && frames_[0].key == "model";
    const std::string& key = frames_.back().key;
    if (in_model && key == "vocab" && container == Json::value_t::object) {
      OpenList(Frame::Kind::kVocab, &document_->has_vocab);
    } else if (in_model && key == "merges" &&
               container == Json::value_t::array) {
      OpenList(Frame::Kind::kMerges, &document_->has_merges);
    } else {
      Json* inserted = Insert(Json(container));
      if (inserted == nullptr) return false;
      Push(Frame::Kind::kDom, inserted);
    }
    return true;
  }

  void OpenList(Frame::Kind kind, bool* seen) {
    if (!std::exchange(*seen, true)) return Push(kind);
    issues_->Invalid(Where(), "the key is repeated");
    Push(Frame::Kind::kSkipped);
  }

  void Push(Frame::Kind kind, Json* dom = nullptr) {
    frames_.push_back({kind, dom, {}, 0});
  }

  bool Close() {
    const Frame::Kind kind = frames_.back().kind;
    const size_t length = frames_.back().index;
    frames_.pop_back();
    if (kind == Frame::Kind::kMergePair) {
      if (length != 2) {
        issues_->Invalid(Where(), "a merge is not a pair",
                         fmt::format("{} values", length), "2 strings");
      } else if (pair_.size() == 2) {
        document_->merges.push_back({std::move(pair_[0]), std::move(pair_[1])});
      }
    }
    if (!frames_.empty()) ++frames_.back().index;
    return true;
  }

  // Puts a value into the container being read; null ends the parse.
  Json* Insert(Json&& value) {
    if (++num_nodes_ > kMaxDomNodes) {
      issues_->Invalid(Where(), "the file has too many values", {},
                       fmt::format("at most {}", kMaxDomNodes));
      return nullptr;
    }
    Frame& frame = frames_.back();
    if (frame.dom->is_array()) {
      frame.dom->push_back(std::move(value));
      return &frame.dom->back();
    }
    if (frame.dom->contains(frame.key)) {
      issues_->Invalid(Where(), "the key is repeated");
      JsonTree::Replace((*frame.dom)[frame.key], nullptr);
    }
    Json& member = (*frame.dom)[frame.key];
    member = std::move(value);
    return &member;
  }

  void AddVocab(const Json& value) {
    const std::string& token = frames_.back().key;
    if (!value.is_number_unsigned() || value.get<uint64_t>() > kMaxTokenId) {
      issues_->Invalid(Where(), "a token has no valid id", Describe(value),
                       fmt::format("an integer 0 ... {}", kMaxTokenId));
    } else if (token.empty()) {
      issues_->Invalid(Where(), "a token is empty", Describe(value));
    } else {
      document_->vocab.push_back({token, value.get<int32_t>()});
    }
  }

  void AddMergeLine(const Json& value) {
    if (value.is_string()) {
      const std::string& line = value.get_ref<const std::string&>();
      const size_t space = line.find(' ');
      if (space != std::string::npos &&
          line.find(' ', space + 1) == std::string::npos) {
        document_->merges.push_back(
            {line.substr(0, space), line.substr(space + 1)});
        return;
      }
    }
    issues_->Invalid(Where(), "a merge is not a pair", Describe(value),
                     "two tokens with one space between, or a list of two");
  }

  void AddMergePart(const Json& value) {
    if (!value.is_string()) {
      issues_->Invalid(Where(), "a part of a merge is not a string",
                       Describe(value));
    } else if (pair_.size() < 2) {
      pair_.push_back(value.get<std::string>());
    }
  }

  const std::string file_;
  TokenizerDocument* document_;
  FileIssues* issues_;
  std::vector<Frame> frames_;
  std::vector<std::string> pair_;
  size_t num_nodes_ = 0;
};

}  // namespace

std::string Describe(const Json& value) {
  if (value.is_string()) return Quoted(value.get_ref<const std::string&>());
  if (value.is_structured()) return value.is_array() ? "an array" : "an object";
  return value.dump();
}

TokenizerDocument ReadTokenizerDocument(std::string_view file,
                                        std::string_view content,
                                        FileIssues* issues) {
  TokenizerDocument document;
  if (content.size() > kMaxFileBytes) {
    issues->Invalid(std::string(file), "the file is too large",
                    fmt::format("{} bytes", content.size()),
                    fmt::format("at most {} bytes", kMaxFileBytes));
    document.rest = nullptr;
    return document;
  }
  Reader reader(file, &document, issues);
  const bool complete =
      Json::sax_parse(content.begin(), content.end(), &reader);
  if (!complete) {
    // What was not reached is not wrong: report nothing about it.
    document = {};
    document.rest = nullptr;
  } else if (!document.rest.is_object()) {
    issues->Invalid(std::string(file), "the file is not an object",
                    Describe(document.rest), "an object");
  }
  return document;
}

}  // namespace signet::text
