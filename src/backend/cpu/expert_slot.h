#pragma once
// Who computes a slot: the one reading of ids and global_to_local.

#include <cstdint>

#include "base/check.h"

namespace signet::backend::cpu {

/// The local expert of global id `id`; -1 if it is foreign or absent (-1).
inline int32_t LocalExpertOf(int32_t id, const int32_t* global_to_local,
                             int64_t num_experts) {
  if (id < 0) return -1;
  SIGNET_CHECK(id < num_experts);
  return global_to_local[id];
}

}  // namespace signet::backend::cpu
