#include "exec/arenas.h"

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

std::byte* Arenas::host(MemoryClass memory_class) const {
  const auto found = memory_.find(memory_class);
  return found == memory_.end() ? nullptr : found->second.host();
}

Result<std::span<const std::byte>> Arenas::Look(
    MemoryClass memory_class) const {
  const std::byte* memory = data(memory_class);
  const auto count = static_cast<size_t>(size(memory_class).value());
  if (memory == host(memory_class)) return std::span(memory, count);
  std::vector<std::byte>& look = looks_[memory_class];
  look.resize(count);
  SIGNET_RETURN_IF_ERROR(
      device_->Download(memory, size(memory_class), look.data()));
  return std::span<const std::byte>(look);
}

Bytes Arenas::size(MemoryClass memory_class) const {
  const auto found = memory_.find(memory_class);
  return found == memory_.end() ? Bytes(0) : found->second.size();
}

Result<void> Arenas::Fill(MemoryClass memory_class, std::byte value) {
  const auto found = memory_.find(memory_class);
  if (found == memory_.end()) return {};
  return device_->Fill(found->second, value);
}

}  // namespace signet::exec
