#pragma once
// Where the tokens of a run go: to standard output as they come, and kept for
// what is printed at the end. Of several requests the texts come one after the
// other, in order. Used from the thread that generates.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "cli/json_output.h"
#include "cli/progress_bar.h"
#include "cli/thinking_style.h"
#include "signet/session.h"

namespace signet::cli {

enum class Show {
  kText,
  kIds,      // a checkpoint without a tokenizer has no text
  kNothing,  // one object is printed at the end
};

struct Form {
  Show show = Show::kNothing;
  bool dims = false;                // thoughts, on a terminal
  bool thinks = false;              // a text begins inside a thought
  bool tells_progress = false;      // of long prompts, on a terminal
  std::vector<std::string> titles;  // one a request if there may be several
};

class RunSink : public Sink {
 public:
  /// Aborts `session` when standard output fails; it must outlive this.
  RunSink(Form form, size_t num_requests, Session& session);

  void OnPrompt(const PromptEvent& event) override;
  void OnToken(const TokenEvent& event) override;
  void OnEnd(const EndEvent& event) override;

  /// One a request.
  const std::vector<Generated>& generated() const { return generated_; }
  /// 0, or the errno of the write that failed.
  int output_error() const { return output_error_; }

 private:
  void Put(size_t request, std::string_view text);
  void Begin();
  void Close();
  void Write(std::string_view text);

  Form form_;
  Session& session_;
  std::vector<Generated> generated_;
  std::vector<std::string> held_;  // of requests whose turn has not come
  std::vector<bool> ended_;
  size_t front_ = 0;  // the request whose text is being written
  bool begun_ = false;
  ThinkingStyle style_;
  ProgressBar prompt_bar_;
  int output_error_ = 0;
};

}  // namespace signet::cli
