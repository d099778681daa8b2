#include "exec/program_set.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "base/check.h"

namespace signet::exec {

Result<std::unique_ptr<ProgramSet>> ProgramSet::Make(
    std::span<const step::SealedProgram> programs, const plan::ModelPlan& plan,
    std::shared_ptr<const store::WeightVersion> weights,
    backend::Device* device, TapObserver* observer,
    const collective::RankCommunicators& communicators) {
  std::map<MemoryClass, Bytes> sizes;
  for (const step::SealedProgram& program : programs) {
    for (const auto& [memory_class, size] : program.arena_bytes()) {
      if (IsOfWeights(memory_class)) continue;
      sizes[memory_class] = std::max(sizes[memory_class], size);
    }
  }
  SIGNET_ASSIGN_OR_RETURN(Arenas arenas,
                          Arenas::Make(device, sizes, weights->generation()));
  std::unique_ptr<ProgramSet> set(new ProgramSet(std::move(arenas)));
  for (const step::SealedProgram& program : programs) {
    SIGNET_ASSIGN_OR_RETURN(
        BoundProgram bound,
        Bind(program, plan, weights, set->arenas_, observer, communicators));
    (bound.shape().kind == plan::ShapeKind::kDecode ? set->decode_
                                                    : set->prefill_)
        .push_back(std::move(bound));
  }
  const auto by_rows = [](const BoundProgram& a, const BoundProgram& b) {
    return a.shape().rows < b.shape().rows;
  };
  std::sort(set->decode_.begin(), set->decode_.end(), by_rows);
  std::sort(set->prefill_.begin(), set->prefill_.end(), by_rows);
  SIGNET_CHECK(!set->decode_.empty() && !set->prefill_.empty());
  set->WriteConstants(plan);
  if (set->decode_.front().io().page_table != nullptr) {
    set->page_table_entries_ =
        plan.options().batch * plan.pool().pages_per_slot;
  }
  return set;
}

const BoundProgram& ProgramSet::Decode(int64_t rows) const {
  for (const BoundProgram& program : decode_) {
    if (program.shape().rows >= rows) return program;
  }
  SIGNET_CHECK(false);
  return decode_.back();
}

const BoundProgram& ProgramSet::Prefill(int64_t rest) const {
  for (const BoundProgram& program : prefill_) {
    if (program.shape().rows >= rest) return program;
  }
  return prefill_.back();
}

std::span<int32_t> ProgramSet::page_table() const {
  return {decode_.front().io().page_table,
          static_cast<size_t>(page_table_entries_)};
}

void ProgramSet::WriteConstants(const plan::ModelPlan& plan) {
  const model::ModelConfig& config = plan.config();
  // All shapes find the constants at one place (lower lays them out so).
  float* inv_freq = decode_.front().io().inv_freq;
  for (const BoundProgram& program : prefill_) {
    SIGNET_CHECK(program.io().inv_freq == inv_freq);
    SIGNET_CHECK(program.io().page_table == decode_.front().io().page_table);
  }
  if (inv_freq == nullptr) return;
  for (int64_t i = 0; i < config.rotary_dim / 2; ++i) {
    // As the reference rounds: exponent, power and reciprocal in fp32.
    const float exponent =
        static_cast<float>(2 * i) / static_cast<float>(config.rotary_dim);
    const auto power = static_cast<float>(
        std::pow(config.rope_theta, static_cast<double>(exponent)));
    inv_freq[i] = 1.0f / power;
  }
}

}  // namespace signet::exec
