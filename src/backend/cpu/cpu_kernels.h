#pragma once
// The CPU kernels: Highway, fp32 arithmetic over weights as stored, all
// threads of one pool. One Kernels is driven by one thread at a time.

#include <memory>

#include "backend/cpu/thread_pool.h"
#include "backend/kernels.h"

namespace signet::backend::cpu {

/// `pool` must outlive the kernels.
std::unique_ptr<Kernels> MakeCpuKernels(ThreadPool* pool);

/// The instruction set Highway dispatches to here ("AVX2", "AVX3", ...), part
/// of the signature and of "the same bits" (contract N7).
const char* InstructionSet();

}  // namespace signet::backend::cpu
