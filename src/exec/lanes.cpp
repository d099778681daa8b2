#include "exec/lanes.h"

#include <algorithm>
#include <array>

namespace signet::exec {
namespace {

using backend::Lane;

constexpr Lane Other(Lane lane) {
  return lane == Lane::kMain ? Lane::kSide : Lane::kMain;
}

class Placer {
 public:
  Placer(size_t count, const Depends& depends)
      : places_(count), depends_(depends) {}

  void Place(size_t i) {
    const Lane lane = Choose(i);
    Put(i, lane, LastDependence(i, Other(lane)));
  }

  // The last launch: nothing is left beside it.
  void PlaceLast(size_t i) {
    std::optional<size_t> last;
    if (!of(Lane::kSide).empty()) last = of(Lane::kSide).back();
    Put(i, Lane::kMain, last);
  }

  std::vector<LanePlace> Take() && { return std::move(places_); }

 private:
  // The launches of a lane that nothing of the other one starts after yet.
  std::vector<size_t>& of(Lane lane) {
    return loose_[static_cast<size_t>(lane)];
  }

  // The main lane, unless it could start before the end of that.
  Lane Choose(size_t i) {
    const std::vector<size_t>& main = of(Lane::kMain);
    return main.empty() || depends_(i, main.back()) ? Lane::kMain : Lane::kSide;
  }

  // The last launch of `lane` that `i` must be made to follow.
  std::optional<size_t> LastDependence(size_t i, Lane lane) {
    const std::vector<size_t>& launches = of(lane);
    const auto found =
        std::find_if(launches.rbegin(), launches.rend(),
                     [&](size_t earlier) { return depends_(i, earlier); });
    if (found != launches.rend()) return *found;
    return std::nullopt;
  }

  void Put(size_t i, Lane lane, std::optional<size_t> follows) {
    // A side lane begins with a launch that follows one of the main lane.
    if (lane == Lane::kSide && of(lane).empty() && !follows) {
      follows = of(Lane::kMain).front();
    }
    places_[i].lane = lane;
    places_[i].follows = follows;
    if (follows) {
      places_[*follows].is_followed = true;
      std::vector<size_t>& others = of(Other(lane));
      others.erase(others.begin(),
                   std::upper_bound(others.begin(), others.end(), *follows));
    }
    of(lane).push_back(i);
  }

  std::vector<LanePlace> places_;
  const Depends& depends_;
  std::array<std::vector<size_t>, 2> loose_;
};

}  // namespace

std::vector<LanePlace> PlaceInLanes(size_t count, const Depends& depends) {
  Placer placer(count, depends);
  for (size_t i = 0; i < count; ++i) {
    if (i + 1 < count) {
      placer.Place(i);
    } else {
      placer.PlaceLast(i);
    }
  }
  return std::move(placer).Take();
}

}  // namespace signet::exec
