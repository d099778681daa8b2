#pragma once
// What `--devices` can name here: the CPU, as this process may use it, and the
// GPUs. Asks the kernel and the driver and makes no context. Sizes are bytes.
// Values; any thread.

#include <cstdint>
#include <string>
#include <vector>

#include "signet/error.h"

namespace signet {

struct CpuListing {
  /// Ranks are cpu:0, cpu:1, ...: as many as are asked for share this CPU.
  std::string name;             // `cpu:0`
  std::string uuid;             // of the machine, and the rank's number
  std::string model;            // as the kernel names it; may be empty
  std::string instruction_set;  // that kernels use here: `AVX2`, `AVX3`, ...
  int cores = 0;                // processors running
  int usable_cores = 0;         // within the affinity and the cgroups' quotas
  uint64_t memory_bytes = 0;    // in all
  uint64_t limit_bytes = 0;     // what cgroups and resource limits leave of it
  uint64_t free_bytes = 0;      // that could be taken now, within the limits
};

struct GpuListing {
  std::string name;  // `gpu:0`
  std::string uuid;  // `GPU-...`
  std::string model;
  std::string pci;              // `0000:3b:00.0`
  std::string instruction_set;  // `sm_90`
  uint64_t memory_bytes = 0;    // in all
  uint64_t free_bytes = 0;      // that could be taken now
};

/// How two GPUs reach each other's memory.
struct LinkListing {
  std::string first;  // `gpu:0`
  std::string second;
  std::string kind;  // `nvlink`, `pcie`, or `host`: through the host alone
};

struct DeviceListing {
  CpuListing cpu;
  std::vector<GpuListing> gpus;
  std::vector<LinkListing> links;  // one a pair of GPUs
  std::string no_gpu;  // why there is none, one sentence; empty if there is
  std::string driver;  // version of the GPUs' driver; empty without one
};

/// Failure: kMemory.
Result<DeviceListing> ListDevices();

}  // namespace signet
