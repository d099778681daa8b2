#pragma once
// Makers and propagation for Result<T> (see signet/error.h).

#include <optional>
#include <string>
#include <utility>

#include "signet/error.h"

namespace signet {

/// The error side of a Result, from one rejection.
inline tl::unexpected<Error> Reject(RejectionCode code, std::string where,
                                    std::string message, std::string got = {},
                                    std::string want = {}) {
  return tl::unexpected<Error>(
      Rejections(Rejection{code, std::move(where), std::move(got),
                           std::move(want), std::move(message)}));
}

inline tl::unexpected<Error> Fail(FailureKind kind, std::string where,
                                  std::string message) {
  return tl::unexpected<Error>(
      Failure{kind, std::move(where), std::move(message)});
}

/// Collects the refusals of one phase, so that all are reported at once.
class RejectionList {
 public:
  void Add(RejectionCode code, std::string where, std::string message,
           std::string got = {}, std::string want = {}) {
    Add(Rejection{code, std::move(where), std::move(got), std::move(want),
                  std::move(message)});
  }
  void Add(Rejection rejection) {
    if (list_) {
      list_->Add(std::move(rejection));
    } else {
      list_.emplace(std::move(rejection));
    }
  }
  /// Takes over the rejections of a failed sub-phase; a Failure is kept as is.
  void Absorb(Error error) {
    if (auto* rejections = std::get_if<Rejections>(&error)) {
      for (const Rejection& rejection : rejections->list()) Add(rejection);
    } else if (!failure_) {
      failure_ = std::get<Failure>(std::move(error));
    }
  }
  bool empty() const { return !list_ && !failure_; }
  /// Only when not empty().
  tl::unexpected<Error> Take() {
    if (failure_) return tl::unexpected<Error>(*std::move(failure_));
    return tl::unexpected<Error>(*std::move(list_));
  }

 private:
  std::optional<Rejections> list_;
  std::optional<Failure> failure_;
};

}  // namespace signet

#define SIGNET_CONCAT_INNER(a, b) a##b
#define SIGNET_CONCAT(a, b) SIGNET_CONCAT_INNER(a, b)

/// Returns the error of `expression` from the calling function, if it has one.
/// Also the way to give a result that is kept: the copy of a Result lets no
/// exception out, so that where memory runs out in it the process ends.
#define SIGNET_RETURN_IF_ERROR(expression)                             \
  if (auto&& signet_result = (expression); !signet_result.has_value()) \
  return tl::unexpected<::signet::Error>(                              \
      std::forward<decltype(signet_result)>(signet_result).error())

/// Declares `declaration` from the value of `expression`, or returns its error.
#define SIGNET_ASSIGN_OR_RETURN(declaration, expression)            \
  auto SIGNET_CONCAT(signet_value_, __LINE__) = (expression);       \
  if (!SIGNET_CONCAT(signet_value_, __LINE__).has_value())          \
    return tl::unexpected<::signet::Error>(                         \
        std::move(SIGNET_CONCAT(signet_value_, __LINE__)).error()); \
  declaration = *std::move(SIGNET_CONCAT(signet_value_, __LINE__))
