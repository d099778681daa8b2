#include "exec/meeting_sizes.h"

#include <algorithm>

#include "base/overload.h"

namespace signet::exec {

collective::AxisSizes MeetingSizesOf(
    std::span<const step::SealedProgram> programs) {
  collective::AxisSizes sizes;
  const auto along =
      [&](const step::GroupRef& group) -> collective::MeetingSizes& {
    return sizes[static_cast<size_t>(group.axis)];
  };
  for (const step::SealedProgram& program : programs) {
    for (const step::Step& step : program.steps()) {
      std::visit(
          Overload{[&](const step::AllReduce& s) {
                     int64_t& most = along(s.group).reduce_elements;
                     most = std::max(most, s.elements);
                   },
                   [&](const step::Gather& s) {
                     const step::BufferDecl& out = program.buffers()[s.out];
                     uint64_t& most = along(s.group).gather_bytes;
                     most = std::max(most,
                                     out.shape.StorageBytes(out.dtype).value());
                   },
                   [](const auto&) {}},
          step);
    }
  }
  return sizes;
}

}  // namespace signet::exec
