#pragma once
// A parsed JSON text that goes without taking memory. The destructor of
// nlohmann::json makes a list of what a container holds; where there is no
// memory for it, the process ends. So the containers are emptied first, from
// the leaves up. For texts of bounded nesting. Read it through a reference to
// nlohmann::json; a copy would be made by conversion. A value; one thread.

#include <nlohmann/json.hpp>
#include <utility>

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
