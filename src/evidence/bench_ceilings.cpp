#include "evidence/bench_ceilings.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "backend/gpu_ceilings.h"
#include "backend/memory.h"

namespace signet::evidence {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;
// Of files, at most.
constexpr uint64_t kFileBytes = 4 * kGiB;

// So much that nothing of it is still in a cache when it is read again.
uint64_t BeyondCaches() {
  const auto cache =
      static_cast<uint64_t>(std::max(0L, sysconf(_SC_LEVEL3_CACHE_SIZE)));
  return std::max(kGiB, 4 * cache);
}

// The largest files first, up to `limit` bytes in all.
Result<std::vector<backend::FileMapping>> MapLargest(
    backend::Device& device, const model::Checkpoint& checkpoint,
    uint64_t limit) {
  std::vector<const model::OpenedFile*> files;
  for (const model::OpenedFile& file : checkpoint.weight_files()) {
    files.push_back(&file);
  }
  std::stable_sort(files.begin(), files.end(),
                   [](const auto* a, const auto* b) {
                     return a->identity().size_bytes > b->identity().size_bytes;
                   });
  std::vector<backend::FileMapping> mappings;
  for (const model::OpenedFile* file : files) {
    const uint64_t size = std::min(file->identity().size_bytes, limit);
    if (size == 0) break;
    SIGNET_ASSIGN_OR_RETURN(
        backend::FileMapping mapping,
        device.Map(file->descriptor(), Bytes(size), file->path()));
    mappings.push_back(std::move(mapping));
    limit -= size;
  }
  return mappings;
}

Result<Ceilings> MeasureOnMemory(uint64_t bytes, int threads) {
  const std::unique_ptr<std::byte[]> values(new (std::nothrow)
                                                std::byte[bytes]);
  if (bytes == 0 || values == nullptr) {
    return Fail(FailureKind::kMemory, "cpu",
                "no memory to measure how fast it is read");
  }
  // Pages that nothing was written to are all the same one.
  std::fill_n(values.get(), bytes, std::byte{1});
  const std::span<const std::byte> region(values.get(), bytes);
  return MeasureCpuCeilings({&region, 1}, threads);
}

}  // namespace

Result<Ceilings> MeasureOnFiles(backend::Device& device,
                                const model::Checkpoint& checkpoint,
                                uint64_t bytes, int threads) {
  SIGNET_RETURN_IF_ERROR(checkpoint.CheckUnchanged());
  SIGNET_ASSIGN_OR_RETURN(const std::vector<backend::FileMapping> mappings,
                          MapLargest(device, checkpoint, bytes));
  std::vector<std::span<const std::byte>> regions;
  for (const backend::FileMapping& mapping : mappings) {
    regions.push_back(mapping.bytes());
  }
  SIGNET_ASSIGN_OR_RETURN(Ceilings ceilings,
                          MeasureCpuCeilings(regions, threads));
  ceilings.read_of = ReadOf::kFiles;
  return ceilings;
}

std::string_view Name(ReadOf read_of) {
  switch (read_of) {
    case ReadOf::kMemory:
      return "memory";
    case ReadOf::kFiles:
      return "files";
  }
  return {};
}

Result<Ceilings> MeasureCeilings(backend::Device& device,
                                 const model::Checkpoint& checkpoint,
                                 int threads) {
  const backend::DeviceFacts& facts = device.facts();
  if (facts.backend == "cpu") {
    const uint64_t room = device.FreeMemory().value() / 2;
    uint64_t bytes = 0;
    for (const model::OpenedFile& file : checkpoint.weight_files()) {
      bytes += file.identity().size_bytes;
    }
    bytes = std::min({bytes, kFileBytes, room});
    return bytes >= BeyondCaches()
               ? MeasureOnFiles(device, checkpoint, bytes, threads)
               : MeasureOnMemory(std::min(BeyondCaches(), room), threads);
  }
  SIGNET_ASSIGN_OR_RETURN(const backend::GpuCeilings gpu,
                          backend::MeasureGpuCeilings(facts.identity));
  return Ceilings{
      .read_bytes_per_second = gpu.read_bytes_per_second,
      .read_of = ReadOf::kMemory,
      .operations_per_second = gpu.bf16_flops,
      .operations = "bf16",
      .host_to_device_bytes_per_second = gpu.host_to_device_bytes_per_second};
}

}  // namespace signet::evidence
