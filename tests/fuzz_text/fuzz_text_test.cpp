// Five thousand edits of the text of programs: each is refused, or is a program
// that runs clean and, because sealing proves the recipe, with the bits of the
// original, whatever its id. Meant for the address sanitizer too.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iostream>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "exec/arenas.h"
#include "exec/bound_program.h"
#include "exec/executor.h"
#include "fuzz_text/text_mutator.h"
#include "step/seal.h"
#include "support/running_model.h"
#include "support/temporary_folder.h"
#include "support/tiny_checkpoint.h"

namespace signet::testing {
namespace {

constexpr int kEdits = 5000;
constexpr int64_t kChunk = 6;

plan::PlanOptions Options() {
  return {
      .context = 16, .batch = 1, .page_tokens = 8, .prefill_chunks = {kChunk}};
}

std::filesystem::path Checkpoint() {
  const std::filesystem::path folder = TemporaryFolder() / "fuzz_text";
  if (!std::filesystem::exists(folder)) {
    ValueOrDie(WriteTinyCheckpoint("moe_awkward", folder));
  }
  return folder;
}

// Runs single programs of one model, each in arenas of its own.
class ProgramRunner {
 public:
  ProgramRunner() : model_(Checkpoint(), Options(), nullptr, 1) {
    const exec::IoViews& io = model_.programs().Decode(1).io();
    inv_freq_.assign(io.inv_freq, io.inv_freq + plan().config().rotary_dim / 2);
  }

  const plan::ModelPlan& plan() const { return model_.plan(); }

  /// The logits and the drawn id of one call from an empty sequence; unset
  /// where the arenas are more than the machine has.
  std::optional<std::vector<float>> Run(const step::SealedProgram& program) {
    auto arenas = exec::Arenas::Make(&model_.device(), program.arena_bytes(),
                                     model_.weights()->generation());
    if (!arenas) return std::nullopt;
    const exec::BoundProgram bound = ValueOrDie(
        exec::Bind(program, plan(), model_.weights(), *arenas, nullptr));
    // What the call writes it must not have read before.
    const auto dirt = std::byte{0xff};
    if (arenas->size(MemoryClass::kWorkspace) < Bytes(uint64_t{1} << 28)) {
      arenas->Fill(MemoryClass::kWorkspace, dirt);
    }
    const exec::IoViews& io = bound.io();
    std::copy(inv_freq_.begin(), inv_freq_.end(), io.inv_freq);
    std::vector<exec::RowInput> rows;
    const bool decode = bound.shape().kind == plan::ShapeKind::kDecode;
    for (int32_t i = 0; i < (decode ? 1 : kChunk - 1); ++i) {
      rows.push_back({.id = 40 + 3 * i, .slot = 0, .position = i});
    }
    const auto vocab = static_cast<int32_t>(plan().config().vocab);
    const std::vector<backend::SamplingRow> sampling = {{.id_bound = vocab}};
    exec::Executor executor(&model_.device());
    ValueOrDie(executor.Run(bound, rows, sampling));
    std::vector<float> result(io.logits, io.logits + vocab);
    result.push_back(static_cast<float>(io.sampled[0]));
    return result;
  }

 private:
  RunningModel model_;
  std::vector<float> inv_freq_;
};

bool HasSameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST(FuzzText, P6_AnEditedProgramIsRefusedOrGivesTheSameBits) {
  const uint64_t seed = std::random_device{}();
  std::cout << "seed " << seed << '\n';
  TextMutator mutator(seed);
  ProgramRunner runner;
  const plan::ModelPlan& plan = runner.plan();
  const std::vector<step::SealedProgram> originals = SealAll(plan);
  std::vector<std::vector<float>> wanted;
  for (const step::SealedProgram& program : originals) {
    wanted.push_back(*runner.Run(program));
  }
  std::set<Digest> ran;
  int parsed_edits = 0;
  int sealed_edits = 0;
  int too_large = 0;
  for (int run = 0; run < kEdits; ++run) {
    const size_t which = static_cast<size_t>(run) % originals.size();
    const std::string& original = originals[which].text();
    const std::string text = mutator.Mutate(original);
    auto draft = step::ParseProgram(text, plan.mesh().epoch());
    if (!draft) continue;
    ++parsed_edits;
    const auto sealed = step::Seal(*std::move(draft), plan);
    if (!sealed) continue;
    ++sealed_edits;
    ASSERT_EQ(sealed->id() == originals[which].id(), text == original)
        << "seed " << seed << " run " << run;
    if (!ran.insert(sealed->id()).second) continue;
    ASSERT_EQ(sealed->shape(), originals[which].shape());
    const auto got = runner.Run(*sealed);
    if (!got) {
      ++too_large;
      continue;
    }
    ASSERT_TRUE(HasSameBits(*got, wanted[which]))
        << "seed " << seed << " run " << run << '\n'
        << text;
  }
  std::cout << kEdits << " edits: " << parsed_edits << " parsed, "
            << sealed_edits << " sealed, " << ran.size() << " distinct ran, "
            << too_large << " too large for this machine\n";
  EXPECT_GT(parsed_edits, kEdits / 20);
  EXPECT_GT(ran.size(), 20u);
}

}  // namespace
}  // namespace signet::testing
