#include "evidence/side_log.h"

#include <fmt/format.h>

#include <algorithm>

namespace signet::evidence {
namespace {

constexpr size_t kMaxKeptFaults = 100;

bool IsState(What what) {
  return what == What::kConv || what == What::kRecurrent ||
         what == What::kKeys || what == What::kValues;
}

}  // namespace

void SideLog::Add(const CallRecord& record) {
  ++calls_;
  Seal seal{.position = record.last_position(),
            .token = -1,
            .logits = {},
            .state = {}};
  Digester state;
  for (const Piece& piece : record.pieces) {
    for (int64_t row = 0; row < piece.rows; ++row) {
      const Digest digest = RowDigest(piece, row);
      const auto position = static_cast<size_t>(piece.position + row);
      while (digesters_.size() <= position) digesters_.emplace_back();
      digesters_[position].Update(fmt::format("{} {} {}\n", piece.layer,
                                              Name(piece.what), digest.Hex()));
      if (IsState(piece.what)) state.Update(digest.Hex());
      if (piece.what == What::kLogits) seal.logits = digest;
    }
    if (piece.what == What::kToken) seal.token = piece.ids.back();
  }
  seal.state = state.Finish();
  seals_.push_back(seal);
  num_faults_ += static_cast<int64_t>(record.faults.size());
  for (const SelfFault& fault : record.faults) {
    if (faults_.size() < kMaxKeptFaults) faults_.push_back(fault);
  }
  collectives_ += record.collectives;
  if (rank_slots_.size() < record.rank_slots.size()) {
    rank_slots_.resize(record.rank_slots.size());
  }
  for (size_t r = 0; r < record.rank_slots.size(); ++r) {
    rank_slots_[r] += record.rank_slots[r];
  }
}

std::vector<Digest> SideLog::PositionDigests() const {
  std::vector<Digest> digests;
  for (const Digester& digester : digesters_) {
    digests.push_back(digester.Finish());
  }
  return digests;
}

std::vector<SelfFault> SideLog::CompareWithTaps(const SideLog& tapped) const {
  std::vector<SelfFault> faults;
  const auto differ = [&](const Seal& seal, const char* what) {
    faults.push_back({what, kNoLayer, seal.position,
                      "the programs with taps do not give that of the "
                      "production programs"});
  };
  if (seals_.size() != tapped.seals_.size()) {
    faults.push_back({"calls", kNoLayer, 0,
                      fmt::format("{} with taps, {} without",
                                  tapped.seals_.size(), seals_.size())});
    return faults;
  }
  for (size_t i = 0; i < seals_.size(); ++i) {
    const Seal& a = seals_[i];
    const Seal& b = tapped.seals_[i];
    if (a.token != b.token) differ(a, "token");
    if (a.logits != b.logits) differ(a, "logits");
    if (a.position != b.position || a.state != b.state) differ(a, "state");
  }
  return faults;
}

}  // namespace signet::evidence
