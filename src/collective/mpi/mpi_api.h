#pragma once
// MPI's C interface, the tags of our messages, and nothing else. Included by
// the sources of this folder alone; without MPI they are not built.

#if __has_include(<mpi.h>)
#define OMPI_SKIP_MPICXX 1
#include <mpi.h>
#endif

namespace signet::collective {

// Messages of one tag between two ranks never overtake one another; ranks meet
// in one pair of groups per tag at most.
inline constexpr int kTagPulse = 1;
inline constexpr int kTagExchange = 2;
inline constexpr int kTagStage = 3;
inline constexpr int kTagFirstAxis = 4;

}  // namespace signet::collective
