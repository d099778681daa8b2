#pragma once
// What is wrong with the tokenizer files: all of it, up to a limit that keeps
// a hostile file's report readable. One thread.

#include <cstddef>
#include <string>
#include <string_view>

#include "base/result.h"

namespace signet::text {

/// Bytes of a hostile file for people: in double quotes, at most 64 bytes of
/// it, control and non-UTF-8 bytes as \xNN.
std::string Quoted(std::string_view bytes);

class FileIssues {
 public:
  /// `where` is the file and the key in it, as `tokenizer.json: model.type`.
  void Invalid(std::string where, std::string message, std::string got = {},
               std::string want = {});
  void Unsupported(std::string where, std::string message, std::string got = {},
                   std::string want = {});

  bool empty() const { return num_issues_ == 0; }
  /// Only when not empty().
  tl::unexpected<Error> Take();

 private:
  void Add(Rejection rejection);

  RejectionList list_;
  size_t num_issues_ = 0;
};

}  // namespace signet::text
