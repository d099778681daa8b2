#pragma once
// What can go wrong, as values. Every call of the public API returns
// Result<T>; an Error is either a non-empty list of rejections (the input is
// wrong, found before execution) or one failure (the world failed after
// admission). Thread rule: values, freely copied between threads.

#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>
#include <variant>
#include <vector>

#include "signet/rejection_code.h"

namespace signet {

/// One reason why an input is refused. `where` names the place (a file, a
/// tensor, a step), `got` and `want` the values; either may be empty.
struct Rejection {
  RejectionCode code;
  std::string where;
  std::string got;
  std::string want;
  std::string message;  // one sentence, lower-case, no final period

  friend bool operator==(const Rejection&, const Rejection&) = default;
};

/// A non-empty list of rejections: everything found in one phase.
class Rejections {
 public:
  // NOLINTNEXTLINE(google-explicit-constructor): one rejection is a list.
  Rejections(Rejection first) { list_.push_back(std::move(first)); }

  void Add(Rejection rejection) { list_.push_back(std::move(rejection)); }
  const std::vector<Rejection>& list() const { return list_; }
  bool Has(RejectionCode code) const;

 private:
  std::vector<Rejection> list_;
};

enum class FailureKind {
  kIo,
  kChangedFile,
  kMemory,
  kDevice,
  kNumeric,  // a sticky numeric flag: non-finite router scores (contract N6)
  kAborted,  // the caller asked for it
  kState,    // a call the object's state does not allow (unloaded, poisoned)
};

/// The world failed after admission. `message` is one sentence.
struct Failure {
  FailureKind kind;
  std::string where;
  std::string message;
};

using Error = std::variant<Rejections, Failure>;

template <typename T>
using Result = tl::expected<T, Error>;

/// The process exit code an error maps to: 3 for rejections, 1 for a failure.
int ExitCode(const Error& error);

/// All reasons, one a line: `code: message (where; got ..., want ...)`.
std::string Describe(const Error& error);
std::string Describe(const Rejection& rejection);

}  // namespace signet
