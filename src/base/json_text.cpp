#include "base/json_text.h"

namespace signet {

// No value ends with one of the characters after which none is separated.
void JsonText::Separate() {
  const bool is_first =
      text_.empty() ||
      std::string_view("{[:").find(text_.back()) != std::string_view::npos;
  if (!is_first) text_ += ',';
}

void JsonText::Key(std::string_view key) {
  Value(key);
  text_ += ':';
}

void JsonText::Append(const nlohmann::json& scalar) {
  Separate();
  text_ +=
      scalar.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace signet
