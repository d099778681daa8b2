#include "evidence/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <tuple>

namespace signet::evidence {
namespace {

enum class Group { kLogits, kResidual, kState, kChoice, kUnbounded };

Group GroupOf(What what) {
  switch (what) {
    case What::kConv:
    case What::kRecurrent:
    case What::kKeys:
    case What::kValues:
      return Group::kState;
    case What::kMiddle:
    case What::kResidual:
      return Group::kResidual;
    case What::kLogits:
      return Group::kLogits;
    case What::kRouterIds:
    case What::kToken:
      return Group::kChoice;
    case What::kRouterScores:
    case What::kRouterWeights:
    case What::kCombine:
      return Group::kUnbounded;
  }
  return Group::kUnbounded;
}

std::span<const float> Values(const Piece& piece, int64_t row) {
  const auto width = static_cast<size_t>(piece.width());
  return std::span(piece.values)
      .subspan(static_cast<size_t>(row) * width, width);
}

std::span<const int32_t> Ids(const Piece& piece, int64_t row) {
  const auto width = static_cast<size_t>(piece.width());
  return std::span(piece.ids).subspan(static_cast<size_t>(row) * width, width);
}

// Bits, so that a NaN equals itself and -0 is not 0.
template <typename T>
bool SameBits(std::span<const T> a, std::span<const T> b) {
  return a.size() == b.size() &&
         std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

double MaxOf(std::span<const float> a, std::span<const float> b) {
  double max = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d =
        std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    // Not less: a NaN on one side is no difference of numbers.
    if (!(d <= max)) {
      max = std::isnan(d) ? std::numeric_limits<double>::infinity() : d;
    }
  }
  return max;
}

double RelativeOf(std::span<const float> reference, std::span<const float> b) {
  double difference = 0;
  double norm = 0;
  for (size_t i = 0; i < reference.size(); ++i) {
    const double r = reference[i];
    const double d = r - b[i];
    difference += d * d;
    norm += r * r;
  }
  if (difference == 0) return 0;
  const double relative = std::sqrt(difference / norm);
  return std::isnan(relative) ? std::numeric_limits<double>::infinity()
                              : relative;
}

}  // namespace

std::string ToString(const Place& place) {
  if (place.layer == kNoLayer) {
    return fmt::format("position {}, {}", place.position, Name(place.what));
  }
  return fmt::format("position {}, layer {}, {}", place.position, place.layer,
                     Name(place.what));
}

void Comparison::Add(const CallRecord& first, const CallRecord& other) {
  first_scores_ = other_scores_ = nullptr;
  // Both are in one order; a piece that only one side has is a difference.
  size_t i = 0;
  size_t j = 0;
  while (i < first.pieces.size() || j < other.pieces.size()) {
    const auto key = [](const Piece& p) {
      return std::tuple(p.layer, p.what, p.position, p.rows, p.width());
    };
    const bool has_first = i < first.pieces.size();
    const bool has_other = j < other.pieces.size();
    if (has_first && has_other &&
        key(first.pieces[i]) == key(other.pieces[j])) {
      AddPiece(first.pieces[i++], other.pieces[j++]);
      continue;
    }
    const bool take_first =
        has_first &&
        (!has_other || key(first.pieces[i]) < key(other.pieces[j]));
    const Piece& lone = take_first ? first.pieces[i++] : other.pieces[j++];
    const Place place{lone.position, lone.layer, lone.what};
    positions_[place.position].max_difference =
        std::numeric_limits<double>::infinity();
    if (!different_ || place < *different_) different_ = place;
    FailAt(place);
  }
}

void Comparison::AddPiece(const Piece& first, const Piece& other) {
  if (first.what == What::kRouterScores || first.what == What::kLogits) {
    first_scores_ = &first;
    other_scores_ = &other;
  }
  for (int64_t row = 0; row < first.rows; ++row) AddRow(first, other, row);
}

void Comparison::AddRow(const Piece& first, const Piece& other, int64_t row) {
  const Place place{first.position + row, first.layer, first.what};
  PositionReport& report = positions_[place.position];
  if (first.what == What::kToken) {
    report.first_token = Ids(first, row)[0];
    report.token = Ids(other, row)[0];
  }
  const bool same = first.ids.empty()
                        ? SameBits(Values(first, row), Values(other, row))
                        : SameBits(Ids(first, row), Ids(other, row));
  if (same) return;
  if (!report.different || place < *report.different) report.different = place;
  if (!different_ || place < *different_) different_ = place;
  const Group group = GroupOf(first.what);
  if (bounds_ && group == Group::kChoice) {
    JudgeChoice(first, other, row);
    return;
  }
  if (bounds_ && group == Group::kUnbounded) return;
  if (first.ids.empty()) {
    const double max = MaxOf(Values(first, row), Values(other, row));
    report.max_difference = std::max(report.max_difference, max);
    JudgeNumbers(place, max,
                 RelativeOf(Values(first, row), Values(other, row)));
  }
  if (!bounds_) FailAt(place);
}

void Comparison::JudgeNumbers(const Place& place, double max, double relative) {
  const auto judge = [&](double& worst, double& worst_relative,
                         double Bounds::* bound) {
    worst = std::max(worst, max);
    // What follows from another choice is not the arithmetic's.
    if (positions_[place.position].excused) return;
    worst_relative = std::max(worst_relative, relative);
    if (bounds_ && !(relative <= (*bounds_).*bound)) FailAt(place);
  };
  switch (GroupOf(place.what)) {
    case Group::kLogits:
      return judge(max_.logits, relative_.logits, &Bounds::logits);
    case Group::kResidual:
      return judge(max_.residual, relative_.residual, &Bounds::residual);
    case Group::kState:
      return judge(max_.state, relative_.state, &Bounds::state);
    case Group::kChoice:
    case Group::kUnbounded:
      return;
  }
}

void Comparison::JudgeChoice(const Piece& first, const Piece& other,
                             int64_t row) {
  const Place place{first.position + row, first.layer, first.what};
  const bool scored =
      first_scores_ != nullptr && first_scores_->position <= place.position &&
      first_scores_->layer == first.layer &&
      place.position < first_scores_->position + first_scores_->rows;
  if (!scored) return FailAt(place);
  const int64_t score_row = place.position - first_scores_->position;
  const std::span<const float> scores = Values(*first_scores_, score_row);
  const double limit = 2 * MaxOf(scores, Values(*other_scores_, score_row));
  double widest = 0;
  for (size_t k = 0; k < Ids(first, row).size(); ++k) {
    const int32_t chosen = Ids(first, row)[k];
    const int32_t instead = Ids(other, row)[k];
    const auto size = static_cast<int32_t>(scores.size());
    if (chosen < 0 || chosen >= size || instead < 0 || instead >= size) {
      return FailAt(place);
    }
    widest = std::max(
        widest,
        std::abs(static_cast<double>(scores[static_cast<size_t>(chosen)]) -
                 static_cast<double>(scores[static_cast<size_t>(instead)])));
  }
  if (!(widest < limit)) return FailAt(place);
  positions_[place.position].excused = true;
  excuses_.push_back({place, widest, limit});
}

void Comparison::FailAt(const Place& place) {
  PositionReport& report = positions_[place.position];
  report.failed = true;
  if (!report.different || place < *report.different) report.different = place;
  if (!failed_ || place < *failed_) failed_ = place;
}

int64_t Comparison::tokens_compared() const {
  return std::count_if(
      positions_.begin(), positions_.end(),
      [](const auto& entry) { return entry.second.token.has_value(); });
}

int64_t Comparison::tokens_equal() const {
  return std::count_if(positions_.begin(), positions_.end(),
                       [](const auto& entry) {
                         return entry.second.token &&
                                entry.second.token == entry.second.first_token;
                       });
}

int64_t Comparison::excused() const {
  return std::count_if(positions_.begin(), positions_.end(),
                       [](const auto& entry) { return entry.second.excused; });
}

bool Comparison::holds() const {
  return !failed_ &&
         static_cast<double>(excused()) <=
             kMaxExcusedShare * static_cast<double>(positions_.size());
}

}  // namespace signet::evidence
