#include "cli/build_id.h"

#include <elf.h>
#include <fmt/format.h>
#include <link.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace signet::cli {
namespace {

constexpr size_t Padded(size_t bytes) { return (bytes + 3) & ~size_t{3}; }

/// The build id among the notes of one segment, or nothing.
std::string FindInNotes(const char* notes, size_t bytes) {
  size_t at = 0;
  while (at + sizeof(ElfW(Nhdr)) <= bytes) {
    ElfW(Nhdr) header;
    std::memcpy(&header, notes + at, sizeof header);
    const size_t name = at + sizeof header;
    const size_t value = name + Padded(header.n_namesz);
    at = value + Padded(header.n_descsz);
    if (at > bytes) break;
    if (header.n_type != NT_GNU_BUILD_ID || header.n_namesz != 4 ||
        std::memcmp(notes + name, "GNU", 4) != 0) {
      continue;
    }
    std::string text;
    for (size_t i = 0; i < header.n_descsz; ++i) {
      text += fmt::format("{:02x}", static_cast<uint8_t>(notes[value + i]));
    }
    return text;
  }
  return {};
}

int VisitObject(dl_phdr_info* info, size_t, void* result) {
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = info->dlpi_phdr[i];
    if (segment.p_type != PT_NOTE) continue;
    const auto* notes =
        reinterpret_cast<const char*>(info->dlpi_addr + segment.p_vaddr);
    const std::string id = FindInNotes(notes, segment.p_memsz);
    if (!id.empty()) *static_cast<std::string*>(result) = id;
  }
  return 1;  // the first object is the executable; the libraries do not count
}

}  // namespace

std::string BuildId() {
  std::string id;
  dl_iterate_phdr(VisitObject, &id);
  return id.empty() ? "unknown" : id;
}

}  // namespace signet::cli
