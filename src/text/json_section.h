#pragma once
// One object of a tokenizer file with the path to it, so that every complaint
// about a key names the key. Borrows the JSON and the issues.

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "text/file_issues.h"

namespace signet::text {

class JsonSection {
 public:
  /// `where` is the path for reports; `value` may be null. An absent or null
  /// value reads as an empty object; so does, once reported, any other value
  /// that is not an object.
  JsonSection(const nlohmann::json* value, std::string where,
              FileIssues* issues);

  /// The value of `key`, or null when the key is absent.
  const nlohmann::json* Find(std::string_view key) const;
  /// True when `key` is absent or null.
  bool IsNull(std::string_view key) const;
  std::string Where(std::string_view key) const;

  /// Unsupported unless `key` is there and equals one of `allowed`.
  bool Want(std::string_view key,
            std::initializer_list<nlohmann::json> allowed) const;
  /// As Want, but an absent or null key is fine.
  bool WantIfSet(std::string_view key,
                 std::initializer_list<nlohmann::json> allowed) const;

  /// The value of a key that must be a string; Invalid and empty if not.
  std::string String(std::string_view key) const;
  /// The value of a key that must be a boolean; Invalid and false if not.
  bool Bool(std::string_view key) const;
  /// The object at `key`.
  JsonSection Section(std::string_view key) const;
  /// The objects of the list at `key`; Invalid and none if it is not a list.
  std::vector<JsonSection> List(std::string_view key) const;

  /// The object itself, or null when there is none.
  const nlohmann::json* object() const { return object_; }
  FileIssues* issues() const { return issues_; }

 private:
  const nlohmann::json* object_;
  std::string where_;
  FileIssues* issues_;
};

}  // namespace signet::text
