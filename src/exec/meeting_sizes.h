#pragma once
// How large the meetings of programs are along each axis: what the buffers
// of their groups must hold. Pure.

#include <span>

#include "collective/world.h"
#include "step/program.h"

namespace signet::exec {

collective::AxisSizes MeetingSizesOf(
    std::span<const step::SealedProgram> programs);

}  // namespace signet::exec
