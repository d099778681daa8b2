#pragma once
// JSON text as it is written: compact, its keys in the order they come. There
// is no document that would have to be given back, which takes memory
// (base/json_tree.h): where memory runs out on the way, the exception just
// leaves. A callable fills each object and list, so that all are closed.
// One thread.

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/json_scalar.h"

namespace signet {

class JsonText {
 public:
  /// An element of a list, or all there is. Bytes that are not UTF-8 are
  /// replaced.
  template <JsonScalar T>
  void Value(const T& value) {
    Append(nlohmann::json(value));
  }
  /// Null if there is none.
  template <JsonScalar T>
  void Value(const std::optional<T>& value) {
    value ? Value(*value) : Value(nullptr);
  }
  template <typename Fill>
  void Object(const Fill& fill) {
    Enclose('{', fill, '}');
  }
  template <typename Fill>
  void Array(const Fill& fill) {
    Enclose('[', fill, ']');
  }

  /// The same as members of an object.
  template <typename T>
  void Field(std::string_view key, const T& value) {
    Key(key);
    Value(value);
  }
  template <typename Fill>
  void Object(std::string_view key, const Fill& fill) {
    Key(key);
    Object(fill);
  }
  template <typename Fill>
  void Array(std::string_view key, const Fill& fill) {
    Key(key);
    Array(fill);
  }

  std::string Take() && { return std::move(text_); }

 private:
  void Separate();
  void Key(std::string_view key);
  void Append(const nlohmann::json& scalar);
  template <typename Fill>
  void Enclose(char open, const Fill& fill, char close) {
    Separate();
    text_ += open;
    fill();
    text_ += close;
  }

  std::string text_;
};

}  // namespace signet
