#include "fuzz/memory_file.h"

#include <sys/mman.h>
#include <unistd.h>

#include <string>
#include <utility>

#include "fuzz/property.h"

namespace signet::fuzz {

model::OpenedFile OpenBytes(const void* data, size_t size) {
  static const int file = ::memfd_create("input", MFD_CLOEXEC);
  FUZZ_REQUIRE(file >= 0);
  FUZZ_REQUIRE(::ftruncate(file, static_cast<off_t>(size)) == 0);
  FUZZ_REQUIRE(::pwrite(file, data, size, 0) == static_cast<ssize_t>(size));
  Result<model::OpenedFile> opened =
      model::OpenedFile::Open("/proc/self/fd/" + std::to_string(file));
  FUZZ_REQUIRE(opened.has_value());
  return *std::move(opened);
}

}  // namespace signet::fuzz
