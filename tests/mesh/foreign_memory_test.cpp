// A rank reads its own experts and nothing of another's (contract X3, X4):
// what it must not read is filled with NaN.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "support/running_mesh.h"
#include "support/running_model.h"
#include "support/temporary_folder.h"
#include "support/tiny_checkpoint.h"

namespace signet::testing {
namespace {

namespace fs = std::filesystem;

constexpr int kRanks = 4;

plan::PlanOptions Options() {
  return {.context = 64, .batch = 1, .prefill_chunks = {16}};
}

std::vector<int32_t> Prompt() {
  std::vector<int32_t> ids;
  for (int i = 0; i < 16; ++i) ids.push_back(17 * i % 300);
  return ids;
}

fs::path Checkpoint(const std::string& name) {
  const fs::path folder = TemporaryFolder() / name;
  ValueOrDie(WriteTinyCheckpoint("moe_awkward", folder));
  return folder;
}

// The partial sum of the first routed block, before it meets the others.
class FirstPartial final : public exec::TapObserver {
 public:
  void OnStep(std::string_view kind, std::span<const exec::TapBuffer> written,
              int64_t live_rows) override {
    if (kind != "moe_combine" || !partial.empty()) return;
    const exec::TapBuffer& out = written[0];
    const auto* begin = static_cast<const float*>(out.data);
    partial.assign(begin, begin + live_rows * out.shape[1]);
  }
  std::vector<float> partial;
};

bool HasSameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// The experts of the files are foreign to every rank of a mesh: each has its
// own in its own memory.
TEST(ForeignMemory, X3_TheExpertsOfTheFilesAreNotReadAfterTheLoad) {
  const fs::path folder = Checkpoint("foreign_files");
  RunningMesh untouched(folder, "ep=4", Options());
  const std::vector<float> wanted = untouched.Run(Prompt(), 4);
  RunningMesh mesh(folder, "ep=4", Options());
  RunningMesh single(folder, "single", Options());
  const model::Manifest& manifest = mesh.plan().manifest();
  int ranges = 0;
  for (const model::ExpertGroup& group : manifest.expert_groups()) {
    for (const model::ExpertProjection* projection :
         {&group.gate, &group.up, &group.down}) {
      for (const model::FileRange& range : projection->sources) {
        std::fstream file(
            manifest.checkpoint().weight_files()[range.file].path(),
            std::ios::in | std::ios::out | std::ios::binary);
        file.seekp(static_cast<std::streamoff>(range.begin_bytes));
        const std::string dirt(range.size_bytes(), '\xff');
        ASSERT_TRUE(
            file.write(dirt.data(), static_cast<std::streamsize>(dirt.size())));
        ++ranges;
      }
    }
  }
  EXPECT_EQ(ranges, 4 * 3 * 12);
  EXPECT_TRUE(HasSameBits(mesh.Run(Prompt(), 4), wanted));
  // The mesh of one reads them where they lie: the dirt is seen.
  const std::vector<backend::SamplingRow> sampling = {{.id_bound = 301}};
  const std::vector<exec::RowInput> rows = {{5, 0, 0}};
  single.state().Extend(SequenceSlot(0), 1);
  const auto seen = single.executor().Prefill(1, rows, sampling);
  ASSERT_FALSE(seen.has_value());
  EXPECT_EQ(std::get<Failure>(seen.error()).kind, FailureKind::kNumeric);
}

TEST(ForeignMemory, X3_ARankReadsNoOtherRanksExperts) {
  const fs::path folder = Checkpoint("foreign_ranks");
  const auto partials = [&](int dirty) {
    std::vector<FirstPartial> taps(kRanks);
    RunningMesh mesh(folder, "ep=4", Options(),
                     {&taps[0], &taps[1], &taps[2], &taps[3]});
    if (dirty >= 0) {
      const auto* table = mesh.weights().Experts(LayerId(0), Rank(dirty));
      const int64_t hidden = mesh.plan().config().hidden;
      const int64_t width = mesh.plan().config().expert_width;
      for (const backend::ExpertPointers& expert : table->experts) {
        for (const void* data : {expert.gate, expert.up, expert.down}) {
          // Memory of the rank's own: it may be written here.
          std::memset(const_cast<void*>(data), 0xff,
                      static_cast<size_t>(2 * hidden * width));
        }
      }
    }
    const std::vector<backend::SamplingRow> sampling = {{.id_bound = 301}};
    const std::vector<int32_t> prompt = Prompt();
    std::vector<exec::RowInput> rows;
    for (int32_t i = 0; i < 16; ++i) {
      rows.push_back({prompt[static_cast<size_t>(i)], 0, i});
    }
    mesh.state().Extend(SequenceSlot(0), 16);
    const bool ok = mesh.executor().Prefill(16, rows, sampling).has_value();
    EXPECT_EQ(ok, dirty < 0);
    std::vector<std::vector<float>> result;
    for (const FirstPartial& tap : taps) result.push_back(tap.partial);
    return result;
  };
  const auto clean = partials(-1);
  for (int dirty = 0; dirty < kRanks; ++dirty) {
    const auto got = partials(dirty);
    for (int r = 0; r < kRanks; ++r) {
      const auto index = static_cast<size_t>(r);
      EXPECT_EQ(HasSameBits(got[index], clean[index]), r != dirty)
          << "rank " << r << ", dirty " << dirty;
    }
  }
}

TEST(ForeignMemory, X4_TheArenasOfAllRanksButStateMayBeDirty) {
  const fs::path folder = Checkpoint("foreign_arenas");
  RunningMesh mesh(folder, "ep=4", Options());
  const std::vector<float> wanted = mesh.Run(Prompt(), 4);
  for (int dirty = 0; dirty < kRanks; ++dirty) {
    mesh.Reset();
    for (const MemoryClass arena : {MemoryClass::kWorkspace, MemoryClass::kIo,
                                    MemoryClass::kCommunicator}) {
      mesh.executor()
          .programs(Rank(dirty))
          .arenas()
          .Fill(arena, std::byte{0xff});
    }
    EXPECT_TRUE(HasSameBits(mesh.Run(Prompt(), 4), wanted)) << dirty;
  }
}

}  // namespace
}  // namespace signet::testing
