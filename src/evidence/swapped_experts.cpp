#include "evidence/swapped_experts.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "backend/forwarding_device.h"

namespace signet::evidence {
namespace {

class SwappingDevice final : public backend::ForwardingDevice {
 public:
  SwappingDevice(std::unique_ptr<backend::Device> inner,
                 const model::Manifest& manifest)
      : ForwardingDevice(*inner),
        inner_(std::move(inner)),
        manifest_(manifest) {}

  Result<backend::FileMapping> Map(int fd, Bytes size,
                                   const std::string& path) override {
    void* const data =
        mmap(nullptr, size.value(), PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED) {
      return Fail(FailureKind::kIo, path, std::strerror(errno));
    }
    auto* const bytes = static_cast<std::byte*>(data);
    const model::ExpertGroup& group = manifest_.expert_groups().front();
    for (const model::ExpertProjection* projection :
         {&group.gate, &group.up, &group.down}) {
      SwapPairs(*projection, path, bytes);
    }
    mprotect(data, size.value(), PROT_READ);
    return backend::FileMapping(this, bytes, size);
  }

  // From the mapping, which is not what the file holds.
  Result<void> Copy(backend::LoadKey key, const backend::Memory& to,
                    uint64_t offset,
                    const backend::StridedRows& from) override {
    backend::StridedRows mapped = from;
    mapped.fd = -1;
    return ForwardingDevice::Copy(key, to, offset, mapped);
  }

 private:
  void SwapPairs(const model::ExpertProjection& projection,
                 const std::string& path, std::byte* bytes) const {
    const auto& files = manifest_.checkpoint().weight_files();
    for (size_t e = 0; e + 1 < projection.sources.size(); e += 2) {
      const model::FileRange& a =
          projection.sources[ExpertId(static_cast<int32_t>(e))];
      const model::FileRange& b =
          projection.sources[ExpertId(static_cast<int32_t>(e + 1))];
      // Experts in two files stay: the pairs within one are enough.
      if (a.file != b.file || files[a.file].path() != path) continue;
      std::swap_ranges(bytes + a.begin_bytes, bytes + a.end_bytes,
                       bytes + b.begin_bytes);
    }
  }

  void Unmap(backend::FileMapping& mapping) override {
    munmap(const_cast<std::byte*>(mapping.data()), mapping.size().value());
  }

  std::unique_ptr<backend::Device> inner_;
  const model::Manifest& manifest_;
};

}  // namespace

std::unique_ptr<backend::Device> SwapExperts(
    std::unique_ptr<backend::Device> device, const model::Manifest& manifest) {
  return std::make_unique<SwappingDevice>(std::move(device), manifest);
}

}  // namespace signet::evidence
