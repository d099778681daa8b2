#include "model/strict_json.h"

#include <fmt/format.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace signet::model {
namespace {

using nlohmann::json;

/// Builds the document and stops at the first fault.
class Builder final : public nlohmann::json_sax<json> {
 public:
  JsonTree root;
  JsonFault fault;

  bool null() override { return Put(nullptr) != nullptr; }
  bool boolean(bool value) override { return Put(value) != nullptr; }
  bool number_integer(int64_t value) override { return Put(value) != nullptr; }
  bool number_unsigned(uint64_t value) override {
    return Put(value) != nullptr;
  }
  bool number_float(double value, const std::string&) override {
    return Put(value) != nullptr;
  }
  bool string(std::string& value) override {
    return Put(std::move(value)) != nullptr;
  }
  bool binary(json::binary_t&) override { return false; }  // not in JSON text
  bool start_object(size_t) override { return Enter(json::object()); }
  bool start_array(size_t) override { return Enter(json::array()); }
  bool end_object() override { return Leave(); }
  bool end_array() override { return Leave(); }

  bool key(std::string& name) override {
    json::object_t& object = open_.back()->get_ref<json::object_t&>();
    const auto [place, inserted] = object.try_emplace(std::move(name));
    if (!inserted) {
      fault.message = "a key appears twice";
      fault.duplicate_key = place->first;
      fault.depth = static_cast<int>(open_.size());
      return false;
    }
    member_ = &place->second;
    return true;
  }

  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    // The library's own text may quote raw bytes that are not UTF-8.
    fault.message = fmt::format("not valid JSON at byte {}", position);
    return false;
  }

 private:
  template <typename Value>
  json* Put(Value&& value) {
    if (++num_values_ > kMaxJsonValues) {
      fault.message = fmt::format("more than {} values", kMaxJsonValues);
      return nullptr;
    }
    if (open_.empty()) {
      root = JsonTree(json(std::forward<Value>(value)));
      return &root;
    }
    if (member_ != nullptr) {
      *member_ = json(std::forward<Value>(value));
      return std::exchange(member_, nullptr);
    }
    json::array_t& array = open_.back()->get_ref<json::array_t&>();
    return &array.emplace_back(std::forward<Value>(value));
  }
  bool Enter(json container) {
    if (static_cast<int>(open_.size()) >= kMaxJsonDepth) {
      fault.message = fmt::format("nested deeper than {}", kMaxJsonDepth);
      return false;
    }
    json* place = Put(std::move(container));
    if (place == nullptr) return false;
    open_.push_back(place);
    return true;
  }
  bool Leave() {
    open_.pop_back();
    return true;
  }

  std::vector<json*> open_;
  json* member_ = nullptr;
  int64_t num_values_ = 0;
};

}  // namespace

tl::expected<JsonTree, JsonFault> ParseStrictJson(std::string_view text) {
  // The library takes a NUL for the end of the text and ignores what follows.
  if (const size_t nul = text.find('\0'); nul != std::string_view::npos) {
    return tl::unexpected(
        JsonFault{fmt::format("not valid JSON at byte {}", nul), {}, 0});
  }
  Builder builder;
  if (!json::sax_parse(text, &builder)) {
    return tl::unexpected(std::move(builder.fault));
  }
  return std::move(builder.root);
}

std::string Shown(const json& value) {
  constexpr size_t kMaxShownBytes = 80;
  std::string text = value.dump(-1, ' ', true);  // ASCII, so any cut is valid
  if (text.size() > kMaxShownBytes) {
    text.resize(kMaxShownBytes);
    text += "...";
  }
  return text;
}

}  // namespace signet::model
