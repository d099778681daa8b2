#include "exec/arenas.h"

#include <cstring>
#include <utility>

#include "plan/layouter.h"

namespace signet::exec {

Result<Arenas> Arenas::Make(backend::Device* device,
                            const std::map<MemoryClass, Bytes>& sizes,
                            uint64_t generation) {
  Arenas arenas(device, generation);
  for (const auto& [memory_class, size] : sizes) {
    if (size == Bytes(0)) continue;
    SIGNET_ASSIGN_OR_RETURN(
        backend::Memory memory,
        device->Allocate(memory_class, size, plan::kBufferAlignment));
    arenas.memory_.emplace(memory_class, std::move(memory));
  }
  return arenas;
}

std::byte* Arenas::data(MemoryClass memory_class) const {
  const auto found = memory_.find(memory_class);
  return found == memory_.end() ? nullptr : found->second.data();
}

Bytes Arenas::size(MemoryClass memory_class) const {
  const auto found = memory_.find(memory_class);
  return found == memory_.end() ? Bytes(0) : found->second.size();
}

void Arenas::Fill(MemoryClass memory_class, std::byte value) {
  if (std::byte* begin = data(memory_class)) {
    std::memset(begin, static_cast<int>(value),
                static_cast<size_t>(size(memory_class).value()));
  }
}

}  // namespace signet::exec
