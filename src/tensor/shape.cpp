#include "tensor/shape.h"

namespace signet::tensor {

std::string ToString(const Shape& shape) {
  std::string text = "[";
  for (int i = 0; i < shape.num_dims(); ++i) {
    if (i > 0) text += ',';
    text += std::to_string(shape[i]);
  }
  return text + "]";
}

}  // namespace signet::tensor
