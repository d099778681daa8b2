#pragma once
// Looking inside a running program (contract E1): a program bound with an
// observer hands it the named buffers each step has just written. No other way
// to look inside exists.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace signet::exec {

/// A buffer right after the step that wrote or updated it.
struct TapBuffer {
  std::string name;  // of the program's buffer
  tensor::DType dtype;
  tensor::Shape shape;
  const void* data;  // valid during the call to the observer
};

class TapObserver {
 public:
  virtual ~TapObserver() = default;
  /// After each step. `live_rows` of the first dimension are meaningful where
  /// it counts rows.
  virtual void OnStep(std::string_view kind, std::span<const TapBuffer> written,
                      int64_t live_rows) = 0;
};

/// What each launch of a bound program shows, and to whom.
struct TapPoints {
  struct Point {
    std::string_view kind;
    std::vector<TapBuffer> written;
  };
  TapObserver* observer;
  std::vector<Point> points;  // one a launch
};

}  // namespace signet::exec
