#pragma once
// Dims what a model thinks on a terminal: the text up to `</think>`, and what
// stands behind a `<think>`. No character is added but the terminal's codes,
// and none is held back. One thread.

#include <cstddef>
#include <string>
#include <string_view>

namespace signet::cli {

class ThinkingStyle {
 public:
  /// Not `on`: text passes as it is. `inside`: it begins in a thought.
  ThinkingStyle(bool on, bool inside) : on_(on), inside_(inside) {}

  std::string Push(std::string_view text);
  /// The code that ends the dim style, if it is on.
  std::string Finish();
  bool is_dim() const { return is_dim_; }

 private:
  void SetDim(bool dim, std::string* styled);

  bool on_;
  bool inside_;
  bool is_dim_ = false;
  size_t matched_ = 0;  // bytes of the tag that would change `inside_`
};

}  // namespace signet::cli
