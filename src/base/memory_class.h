#pragma once
// What a piece of memory is for; the plan, the arenas and the allocator count
// in these classes (contract P4).

#include <array>
#include <optional>
#include <string_view>

namespace signet {

enum class MemoryClass {
  kMapped,        // file-backed views of weights
  kExperts,       // expert weights in our own memory
  kDense,         // other weights, constants and page tables
  kKv,            // paged keys and values
  kRecurrent,     // recurrent and conv state
  kWorkspace,     // activations and kernel scratch
  kIo,            // inputs, outputs and constants of a call
  kCommunicator,  // collective buffers
};

inline constexpr std::array kAllMemoryClasses = {
    MemoryClass::kMapped, MemoryClass::kExperts,     MemoryClass::kDense,
    MemoryClass::kKv,     MemoryClass::kRecurrent,   MemoryClass::kWorkspace,
    MemoryClass::kIo,     MemoryClass::kCommunicator};

constexpr std::string_view Name(MemoryClass memory_class) {
  switch (memory_class) {
    case MemoryClass::kMapped:
      return "mapped";
    case MemoryClass::kExperts:
      return "experts";
    case MemoryClass::kDense:
      return "dense";
    case MemoryClass::kKv:
      return "kv";
    case MemoryClass::kRecurrent:
      return "recurrent";
    case MemoryClass::kWorkspace:
      return "workspace";
    case MemoryClass::kIo:
      return "io";
    case MemoryClass::kCommunicator:
      return "communicator";
  }
  return "";
}

constexpr std::optional<MemoryClass> ParseMemoryClass(std::string_view name) {
  for (MemoryClass memory_class : kAllMemoryClasses) {
    if (Name(memory_class) == name) return memory_class;
  }
  return std::nullopt;
}

}  // namespace signet
