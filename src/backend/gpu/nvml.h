#pragma once
// What NVML says of a GPU without a context: loaded when first asked, absent
// where there is no driver. Any thread.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace signet::backend::gpu {

/// Free bytes of the GPU with this UUID (`GPU-...`); unset without NVML.
std::optional<uint64_t> NvmlFreeBytes(std::string_view uuid);
/// Whether the GPUs with these UUIDs reach each other over NVLink; false
/// without NVML.
bool NvmlHasNvLink(const std::string& first, const std::string& second);
/// Whether the driver's library is on this machine.
bool HasDriver();
/// `580.159.04`; empty without NVML.
std::string NvmlDriverVersion();

}  // namespace signet::backend::gpu
