#pragma once
// A parsed JSON text that goes without taking memory. The destructor of
// nlohmann::json makes a list of what a container holds; where there is no
// memory for it, the process ends. So the containers are emptied first, from
// the leaves up. For texts of bounded nesting. Read it through a reference to
// nlohmann::json; a copy would be made by conversion. Compare text with text:
// `==` of a value and a literal makes a value, and cannot fail but by the end
// of the process. A value; one thread.
//
// Is edited in place: what may be a container is replaced by null before it is
// erased or assigned to, and a new one is put in empty and then filled. A null
// that `[]` or push_back turns into one is broken where memory runs out.

#include <nlohmann/json.hpp>
#include <utility>

#include "base/json_scalar.h"

namespace signet {

class JsonTree : public nlohmann::json {
 public:
  JsonTree() = default;
  explicit JsonTree(nlohmann::json&& value)
      : nlohmann::json(std::move(value)) {}
  JsonTree(JsonTree&& other) noexcept
      : nlohmann::json(static_cast<nlohmann::json&&>(other)) {}
  JsonTree& operator=(JsonTree&& other) noexcept {
    return *this = static_cast<nlohmann::json&&>(other);
  }
  JsonTree& operator=(nlohmann::json&& value) noexcept {
    TakeApart(*this);
    nlohmann::json::operator=(std::move(value));
    return *this;
  }
  ~JsonTree() { TakeApart(*this); }

  /// Puts `scalar` in the place of any value of a tree.
  template <JsonScalar T>
  static void Replace(nlohmann::json& place, const T& scalar) {
    nlohmann::json made(scalar);
    TakeApart(place);
    place = std::move(made);
  }

 private:
  static void TakeApart(nlohmann::json& value) noexcept {
    if (value.is_array()) {
      array_t& array = value.get_ref<array_t&>();
      for (nlohmann::json& element : array) TakeApart(element);
      array.clear();
    } else if (value.is_object()) {
      object_t& object = value.get_ref<object_t&>();
      for (auto& [name, member] : object) TakeApart(member);
      object.clear();
    }
  }
};

}  // namespace signet
