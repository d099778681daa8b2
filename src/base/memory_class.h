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
  kDense,         // weights outside the experts that a rank holds cut
  kKv,            // paged keys and values
  kRecurrent,     // recurrent and conv state
  kWorkspace,     // activations and kernel scratch
  kIo,            // inputs and outputs of a call
  kTables,        // constants and page tables, which outlive calls
  kCommunicator,  // collective buffers
  kDriver,        // a GPU's context, modules, graphs and kernel scratch
};

inline constexpr std::array<MemoryClass, 10> kAllMemoryClasses = {
    MemoryClass::kMapped, MemoryClass::kExperts,   MemoryClass::kDense,
    MemoryClass::kKv,     MemoryClass::kRecurrent, MemoryClass::kWorkspace,
    MemoryClass::kIo,     MemoryClass::kTables,    MemoryClass::kCommunicator,
    MemoryClass::kDriver};

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
    case MemoryClass::kTables:
      return "tables";
    case MemoryClass::kCommunicator:
      return "communicator";
    case MemoryClass::kDriver:
      return "driver";
  }
  return "";
}

/// Memory that the load of the weights reserves; the rest is a session's.
constexpr bool IsOfWeights(MemoryClass memory_class) {
  return memory_class == MemoryClass::kMapped ||
         memory_class == MemoryClass::kExperts ||
         memory_class == MemoryClass::kDense;
}

constexpr std::optional<MemoryClass> ParseMemoryClass(std::string_view name) {
  for (MemoryClass memory_class : kAllMemoryClasses) {
    if (Name(memory_class) == name) return memory_class;
  }
  return std::nullopt;
}

}  // namespace signet
