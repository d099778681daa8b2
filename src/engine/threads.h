#pragma once

namespace signet {

/// `wanted`, or when it is 0 the number of processors this process may use:
/// its affinity, within the quotas of its control groups. At least 1.
int WorkingThreads(int wanted);

}  // namespace signet
