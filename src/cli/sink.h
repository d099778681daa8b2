#pragma once
// Where the tokens of a run go: to standard output as they come, and kept for
// what is printed at the end. Used from the thread that generates.

#include "cli/json_output.h"
#include "signet/session.h"

namespace signet::cli {

enum class Show {
  kText,
  kIds,      // a checkpoint without a tokenizer has no text
  kNothing,  // one object is printed at the end
};

class RunSink : public Sink {
 public:
  /// Aborts `session` when standard output fails; it must outlive this.
  RunSink(Show show, Session& session) : show_(show), session_(session) {}

  void OnToken(const TokenEvent& event) override;
  void OnEnd(const EndEvent& event) override;

  const Generated& generated() const { return generated_; }
  /// 0, or the errno of the write that failed.
  int output_error() const { return output_error_; }

 private:
  void Write(std::string_view text);

  Show show_;
  Session& session_;
  Generated generated_;
  int output_error_ = 0;
};

}  // namespace signet::cli
