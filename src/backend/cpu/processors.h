#pragma once
// The processors this process may use, and what they are.

#include <string>

#include "backend/cpu/system_file.h"

namespace signet::backend::cpu {

/// Processors the machine has running; at least 1.
int OnlineProcessors();
/// Of these, as many as this thread's affinity and the quotas of the control
/// groups allow; a fraction is cut off. At least 1.
int UsableProcessors(const SystemRoots& roots = {});
/// As the kernel names it; empty where it does not.
std::string ProcessorModel(const SystemRoots& roots = {});

}  // namespace signet::backend::cpu
