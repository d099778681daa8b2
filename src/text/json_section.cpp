#include "text/json_section.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "text/tokenizer_document.h"

namespace signet::text {
namespace {

using Json = nlohmann::json;

std::string OneOf(std::initializer_list<Json> allowed) {
  std::string text;
  for (const Json& value : allowed) {
    if (!text.empty()) text += " or ";
    text += Describe(value);
  }
  return text;
}

std::string DescribeIfThere(const Json* value) {
  return value == nullptr ? "nothing" : Describe(*value);
}

}  // namespace

JsonSection::JsonSection(const Json* value, std::string where,
                         FileIssues* issues)
    : object_(nullptr), where_(std::move(where)), issues_(issues) {
  if (value == nullptr || value->is_null()) return;
  if (value->is_object()) {
    object_ = value;
  } else {
    issues_->Invalid(where_, "the value is not an object", Describe(*value),
                     "an object");
  }
}

const Json* JsonSection::Find(std::string_view key) const {
  if (object_ == nullptr) return nullptr;
  const auto member = object_->find(key);
  return member == object_->end() ? nullptr : &*member;
}

bool JsonSection::IsNull(std::string_view key) const {
  const Json* value = Find(key);
  return value == nullptr || value->is_null();
}

std::string JsonSection::Where(std::string_view key) const {
  return fmt::format("{}{}{}", where_, where_.ends_with(':') ? " " : ".", key);
}

bool JsonSection::Want(std::string_view key,
                       std::initializer_list<Json> allowed) const {
  const Json* value = Find(key);
  if (value != nullptr && std::ranges::find(allowed, *value) != allowed.end()) {
    return true;
  }
  issues_->Unsupported(Where(key), "the setting is not supported",
                       DescribeIfThere(value), OneOf(allowed));
  return false;
}

bool JsonSection::WantIfSet(std::string_view key,
                            std::initializer_list<Json> allowed) const {
  return IsNull(key) || Want(key, allowed);
}

std::string JsonSection::String(std::string_view key) const {
  const Json* value = Find(key);
  if (value != nullptr && value->is_string()) return value->get<std::string>();
  issues_->Invalid(Where(key), "the value is not a string",
                   DescribeIfThere(value), "a string");
  return {};
}

bool JsonSection::Bool(std::string_view key) const {
  const Json* value = Find(key);
  if (value != nullptr && value->is_boolean()) return value->get<bool>();
  issues_->Invalid(Where(key), "the value is not a boolean",
                   DescribeIfThere(value), "true or false");
  return false;
}

JsonSection JsonSection::Section(std::string_view key) const {
  return JsonSection(Find(key), Where(key), issues_);
}

std::vector<JsonSection> JsonSection::List(std::string_view key) const {
  std::vector<JsonSection> sections;
  const Json* value = Find(key);
  if (value == nullptr || !value->is_array()) {
    issues_->Invalid(Where(key), "the value is not a list",
                     DescribeIfThere(value), "a list");
    return sections;
  }
  for (const Json& element : *value) {
    sections.emplace_back(
        &element, fmt::format("{}[{}]", Where(key), sections.size()), issues_);
  }
  return sections;
}

}  // namespace signet::text
