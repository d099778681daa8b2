#include "plan/layouter.h"

#include <algorithm>
#include <numeric>

namespace signet::plan {

Layout LayOut(const std::vector<LayoutRequest>& requests) {
  Layout layout;
  layout.offsets.assign(requests.size(), 0);
  std::vector<size_t> order(requests.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return requests[a].size > requests[b].size;
  });

  std::vector<size_t> placed;  // ascending by offset
  for (const size_t index : order) {
    const LayoutRequest& request = requests[index];
    Bytes offset;
    for (const size_t other_index : placed) {
      const LayoutRequest& other = requests[other_index];
      if (other.last_step < request.first_step ||
          request.last_step < other.first_step) {
        continue;
      }
      const Bytes other_begin(layout.offsets[other_index]);
      if (offset + request.size <= other_begin) break;
      offset = std::max(offset,
                        (other_begin + other.size).AlignUp(request.alignment));
    }
    const Bytes end = offset + request.size;
    if (end.overflowed()) {
      layout.total = Bytes::Overflow();
      return layout;
    }
    layout.offsets[index] = offset.value();
    layout.total = std::max(layout.total, end);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), index,
                                   [&](size_t a, size_t b) {
                                     return layout.offsets[a] <
                                            layout.offsets[b];
                                   }),
                  index);
  }
  return layout;
}

}  // namespace signet::plan
