#pragma once
// Two sides laid beside each other, position by position (contract E1, N5).
// Bitwise: any other bit is a difference. Bounded: residual, state and logits
// may be apart by the bounds; a greedy token or a router id may be another only
// where the first side's own margin is under twice the largest difference of
// the scores it was chosen from, and such a position is excused and counted.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "evidence/bounds.h"
#include "evidence/record.h"

namespace signet::evidence {

struct Place {
  int64_t position;
  int32_t layer;
  What what;
  friend auto operator<=>(const Place&, const Place&) = default;
};

/// `position 17, layer 3, router ids`.
std::string ToString(const Place& place);

/// What is known of one position.
struct PositionReport {
  std::optional<int32_t> first_token;  // drawn after it
  std::optional<int32_t> token;
  double max_difference = 0;       // of any number; infinite beside a NaN
  std::optional<Place> different;  // the first place whose bits differ
  bool excused = false;
  bool failed = false;
};

struct MaxDifference {
  double logits = 0;
  double residual = 0;
  double state = 0;
};

/// Largest |difference|_2 / |reference|_2 of a row.
struct RelativeDifference {
  double logits = 0;
  double residual = 0;
  double state = 0;
};

struct Excuse {
  Place place;
  double margin;
  double limit;
};

class Comparison {
 public:
  /// Unset `bounds`: bitwise.
  explicit Comparison(std::optional<Bounds> bounds) : bounds_(bounds) {}

  void Add(const CallRecord& first, const CallRecord& other);

  const std::map<int64_t, PositionReport>& positions() const {
    return positions_;
  }
  const MaxDifference& max_difference() const { return max_; }
  const RelativeDifference& relative() const { return relative_; }
  const std::vector<Excuse>& excuses() const { return excuses_; }
  /// The first place whose bits differ, and the first that fails.
  const std::optional<Place>& different() const { return different_; }
  const std::optional<Place>& failed() const { return failed_; }
  int64_t tokens_compared() const;
  int64_t tokens_equal() const;
  int64_t excused() const;
  /// Nothing failed, and few enough positions are excused.
  bool holds() const;

 private:
  void AddPiece(const Piece& first, const Piece& other);
  void AddRow(const Piece& first, const Piece& other, int64_t row);
  void JudgeNumbers(const Place& place, double max, double relative);
  void JudgeChoice(const Piece& first, const Piece& other, int64_t row);
  void FailAt(const Place& place);

  std::optional<Bounds> bounds_;
  // What the router ids, or the tokens, of this call were chosen from.
  const Piece* first_scores_ = nullptr;
  const Piece* other_scores_ = nullptr;
  std::map<int64_t, PositionReport> positions_;
  MaxDifference max_;
  RelativeDifference relative_;
  std::vector<Excuse> excuses_;
  std::optional<Place> different_;
  std::optional<Place> failed_;
};

}  // namespace signet::evidence
