// What each step kind accepts and makes of parts (S3).

#include "step/rules/parts.h"

namespace signet::step::rules {

void PartRules::operator()(const Embed& s) {
  TakeWhole({"ids", s.ids});
  TakeWhole({"table", s.table});
  Make({"out", s.out}, Part::Whole());
}

// Its sum runs over the whole width.
void PartRules::operator()(const Norm& s) {
  TakeWhole({"x", s.x});
  TakeWhole({"weight", s.weight});
  Make({"out", s.out}, Part::Whole());
}

// Addends would not round as their sum does.
void PartRules::operator()(const Round& s) {
  if (!TakeSettled({"x", s.x})) return;
  Make({"out", s.out}, Of(s.x));
}

// Rows of a weight make a shard of the output; columns read a shard of the
// input and make addends.
void PartRules::operator()(const Projection& s) {
  if (!TakeSettled({"x", s.x}) || !TakeSettled({"weight", s.weight})) return;
  const Part weight = Of(s.weight);
  if (Of(s.x).kind == PartKind::kWhole) {
    Make({"out", s.out}, weight);
  } else if (Take({"x", s.x}, weight)) {
    Make({"out", s.out}, Part::Partial(weight.axis));
  }
}

// The heads of a rank.
void PartRules::operator()(const QkNormRope& s) {
  TakeWhole({"q_norm", s.q_norm});
  TakeWhole({"k_norm", s.k_norm});
  TakeWhole({"inv_freq", s.inv_freq});
  TakeWhole({"position", s.position});
  const Part heads = Of(s.q_gate);
  if (!TakeSettled({"q_gate", s.q_gate}) || !Take({"k", s.k}, heads)) return;
  Make({"q_out", s.q_out}, heads);
  Make({"k_out", s.k_out}, heads);
}

void PartRules::operator()(const KvAppend& s) {
  TakeWhole({"slot", s.slot});
  TakeWhole({"position", s.position});
  TakeWhole({"page_table", s.page_table});
  const Part heads = Of(s.k);
  if (!TakeSettled({"k", s.k})) return;
  Take({"v", s.v}, heads);
  Take({"k_cache", s.k_cache}, heads);
  Take({"v_cache", s.v_cache}, heads);
}

void PartRules::operator()(const Attention& s) {
  TakeWhole({"slot", s.slot});
  TakeWhole({"position", s.position});
  TakeWhole({"page_table", s.page_table});
  const Part heads = Of(s.q);
  if (!TakeSettled({"q", s.q}) || !Take({"q_gate", s.q_gate}, heads)) return;
  Take({"k_cache", s.k_cache}, heads);
  Take({"v_cache", s.v_cache}, heads);
  Make({"out", s.out}, heads);
}

void PartRules::operator()(const Conv& s) {
  TakeWhole({"slot", s.slot});
  TakeWhole({"position", s.position});
  const Part channels = Of(s.u);
  if (!TakeSettled({"u", s.u})) return;
  Take({"weight", s.weight}, channels);
  Take({"state", s.state}, channels);
  Make({"out", s.out}, channels);
}

void PartRules::operator()(const DeltaRule& s) {
  TakeWhole({"slot", s.slot});
  TakeWhole({"position", s.position});
  const Part heads = Of(s.qkv);
  if (!TakeSettled({"qkv", s.qkv})) return;
  Take({"b", s.b}, heads);
  Take({"a", s.a}, heads);
  Take({"a_log", s.a_log}, heads);
  Take({"dt_bias", s.dt_bias}, heads);
  Take({"state", s.state}, heads);
  if (s.scratch) Make({"scratch", *s.scratch}, heads);
  Make({"out", s.out}, heads);
}

void PartRules::operator()(const GatedNorm& s) {
  TakeWhole({"weight", s.weight});
  const Part heads = Of(s.o);
  if (!TakeSettled({"o", s.o}) || !Take({"z", s.z}, heads)) return;
  Make({"out", s.out}, heads);
}

void PartRules::operator()(const Activation& s) {
  const Part width = Of(s.gate);
  if (!TakeSettled({"gate", s.gate}) || !Take({"up", s.up}, width)) return;
  Make({"out", s.out}, width);
}

void PartRules::operator()(const ResidualAdd& s) {
  Sum({"residual", s.residual}, {"addend", s.addend}, {"out", s.out});
}

// The gate scales an addend as it scales the sum.
void PartRules::operator()(const GatedAdd& s) {
  TakeWhole({"gate", s.gate});
  Sum({"addend", s.addend}, {"x", s.x}, {"out", s.out});
}

void PartRules::operator()(const MoeRoute& s) {
  if (s.scores) TakeWhole({"scores", *s.scores});
  if (s.in_ids) TakeWhole({"in_ids", *s.in_ids});
  if (s.in_weights) TakeWhole({"in_weights", *s.in_weights});
  TakeWhole({"flag", s.flag});
  Make({"ids", s.ids}, Part::Whole());
  Make({"weights", s.weights}, Part::Whole());
}

void PartRules::operator()(const IndexedMoeGemv& s) {
  Experts(s.experts);
  TakeWhole({"ids", s.ids});
  if (s.which == ExpertPart::kGateUp) {
    TakeWhole({"x", s.x});
    Make({"out", s.out}, ExpertShare());
    if (s.up) Make({"up", *s.up}, ExpertShare());
  } else if (Take({"x", s.x}, ExpertShare())) {
    Make({"out", s.out}, DownShare());
  }
}

void PartRules::operator()(const MoeScatter& s) {
  Experts(s.experts);
  TakeWhole({"ids", s.ids});
  Make({"counts", s.counts}, SlotShare());
  Make({"offsets", s.offsets}, SlotShare());
  Make({"sorted_slot", s.sorted_slot}, SlotShare());
  Make({"tile_expert", s.tile_expert}, SlotShare());
  Make({"inverse_perm", s.inverse_perm}, SlotShare());
}

void PartRules::operator()(const GroupedMoeGemm& s) {
  Experts(s.experts);
  Take({"sorted_slot", s.sorted_slot}, SlotShare());
  Take({"tile_expert", s.tile_expert}, SlotShare());
  if (s.which == ExpertPart::kGateUp) {
    TakeWhole({"x", s.x});
    Make({"y", s.y}, ExpertShare());
  } else if (Take({"x", s.x}, ExpertShare())) {
    Make({"y", s.y}, DownShare());
  }
}

void PartRules::operator()(const MoeGateUpUnscatter& s) {
  Take({"sorted_slot", s.sorted_slot}, SlotShare());
  if (!Take({"y", s.y}, ExpertShare())) return;
  Make({"gate", s.gate}, ExpertShare());
  Make({"up", s.up}, ExpertShare());
}

void PartRules::operator()(const MoeActivation& s) {
  const bool gate = Take({"gate", s.gate}, ExpertShare());
  const bool up = Take({"up", s.up}, ExpertShare());
  if (gate && up) Make({"out", s.out}, ExpertShare());
}

// The mesh of one makes addends too: its reduction is the identity.
void PartRules::operator()(const MoeCombine& s) {
  Experts(s.experts);
  TakeWhole({"ids", s.ids});
  TakeWhole({"weights", s.weights});
  if (s.inverse_perm) Take({"inverse_perm", *s.inverse_perm}, SlotShare());
  if (!Take({"d", s.d}, DownShare())) return;
  Make({"out", s.out}, Part::Partial(context_.expert_axis));
}

void PartRules::operator()(const AllReduce& s) {
  const Named x{"x", s.x};
  const Part want = Part::Partial(s.group.axis);
  if (Of(s.x).kind == PartKind::kWhole && reduced_[s.x] != 0) {
    Refuse(RejectionCode::kPartialReducedTwice, x,
           "a sum that is reduced already is reduced again", Of(s.x), want);
    return;
  }
  if (!Take(x, want)) return;
  reduced_[s.out] = 1;
  Make({"out", s.out}, Part::Whole());
}

void PartRules::operator()(const Gather& s) {
  if (!Take({"x", s.x}, Part::Shard(s.group.axis))) return;
  Make({"out", s.out}, Part::Whole());
}

void PartRules::operator()(const Broadcast& s) {
  if (s.x && !TakeWhole({"x", *s.x})) return;
  Make({"out", s.out}, Part::Whole());
}

void PartRules::operator()(const BandTransfer& s) {
  if (s.x) TakeWhole({"x", *s.x});
  if (s.out) Make({"out", *s.out}, Part::Whole());
}

// Rows of the vocabulary make a shard of the logits.
void PartRules::operator()(const Logits& s) {
  if (!TakeWhole({"x", s.x}) || !TakeSettled({"weight", s.weight})) return;
  Make({"out", s.out}, Of(s.weight));
}

void PartRules::operator()(const Sample& s) {
  TakeWhole({"logits", s.logits});
  TakeWhole({"params", s.params});
  TakeWhole({"flag", s.flag});
  Make({"scratch", s.scratch}, Part::Whole());
  Make({"ids", s.ids}, Part::Whole());
}

}  // namespace signet::step::rules
