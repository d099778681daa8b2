#pragma once
// The input as an opened file, for readers that take one.

#include "base/result.h"
#include "model/checkpoint.h"

namespace signet::fuzz {

/// A file in memory that holds the bytes, opened. Ends the program where the
/// system has no memory files.
model::OpenedFile OpenBytes(const void* data, size_t size);

}  // namespace signet::fuzz
