// A weight that is no number ends the load by its name, and nothing is left:
// always where every token meets it, and anywhere when that is asked for.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "backend/cpu/cpu_device.h"
#include "exec/exec_testing.h"
#include "store/load_transaction.h"
#include "support/running_model.h"

namespace signet::testing {
namespace {

namespace fs = std::filesystem;
using store::Scan;
using ::testing::HasSubstr;

plan::PlanOptions Options() {
  plan::PlanOptions options = {.context = 32, .page_tokens = 8};
  options.prefill_chunks = {4};
  return options;
}

// Loads, and sees that a refused load has given everything back.
Result<void> LoadFolder(const fs::path& folder, Scan scan) {
  const auto device = backend::cpu::MakeCpuDevice(0, 1);
  Result<void> read;
  {
    store::LoadTransaction transaction(MakePlan(folder, Options()),
                                       {device.get()});
    read = transaction.Read({}, scan);
  }
  const backend::AllocationCounts counts = device->counts();
  EXPECT_EQ(counts.allocations, counts.frees);
  EXPECT_EQ(counts.maps, counts.unmaps);
  return read;
}

// Two bytes at `at` of a weight file, given back when it goes.
class Poison {
 public:
  Poison(const fs::path& path, uint64_t at) : path_(path), at_(at) {
    std::ifstream file(path, std::ios::binary);
    file.seekg(static_cast<std::streamoff>(at));
    file.read(before_, sizeof before_);
    Write("\xc0\x7f");  // a bf16 NaN
  }
  ~Poison() { Write(before_); }
  Poison(const Poison&) = delete;
  Poison& operator=(const Poison&) = delete;

 private:
  void Write(const char* bytes) const {
    std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(at_));
    file.write(bytes, sizeof before_);
  }
  fs::path path_;
  uint64_t at_;
  char before_[2] = {};
};

class FiniteLoad : public ::testing::Test {
 protected:
  FiniteLoad()
      : folder_(CopyOfMoeCheckpoint("finite")),
        manifest_(OpenManifest(folder_)) {}
  fs::path FileOf(const model::FileRange& range) const {
    return manifest_->checkpoint().weight_files()[range.file].path();
  }
  const fs::path folder_;
  const std::shared_ptr<const model::Manifest> manifest_;
};

TEST_F(FiniteLoad, A3_NormsRoutersAndDecaysAreAlwaysFinite) {
  std::set<model::Role> refused;
  std::set<model::Role> loaded;
  for (const model::WeightEntry& weight : manifest_->weights()) {
    if (weight.alias_of) continue;
    SCOPED_TRACE(weight.name);
    ASSERT_EQ(weight.dtype, tensor::DType::kBF16);
    const Poison poison(FileOf(weight.source), weight.source.end_bytes - 2);
    const Result<void> quick = LoadFolder(folder_, Scan::kSensitive);
    if (quick) {
      loaded.insert(weight.role);
    } else {
      refused.insert(weight.role);
      EXPECT_TRUE(RefusesWith(quick.error(), RejectionCode::kWeightNotFinite));
      EXPECT_THAT(Describe(quick.error()),
                  HasSubstr(weight.name + "; got nan"));
    }
    const Result<void> whole = LoadFolder(folder_, Scan::kEverything);
    ASSERT_FALSE(whole.has_value());
    EXPECT_TRUE(RefusesWith(whole.error(), RejectionCode::kWeightNotFinite));
    EXPECT_THAT(Describe(whole.error()), HasSubstr(weight.name + "; got nan"));
  }
  using model::Role;
  EXPECT_EQ(refused,
            (std::set{Role::kFinalNorm, Role::kInputNorm, Role::kPostNorm,
                      Role::kQNorm, Role::kKNorm, Role::kALog, Role::kDtBias,
                      Role::kLinearNorm, Role::kRouter, Role::kSharedRouter}));
  EXPECT_TRUE(loaded.contains(Role::kQProj));
  EXPECT_TRUE(LoadFolder(folder_, Scan::kEverything).has_value());
}

TEST_F(FiniteLoad, A3_ExpertsAreFiniteWhenAsked) {
  const model::ExpertGroup& group = manifest_->expert_groups().back();
  for (const model::ExpertProjection* projection :
       {&group.gate, &group.up, &group.down}) {
    for (const ExpertId expert : {ExpertId(0), ExpertId(7)}) {
      const model::FileRange& range = projection->sources[expert];
      const Poison poison(FileOf(range), range.begin_bytes);
      EXPECT_TRUE(LoadFolder(folder_, Scan::kSensitive).has_value());
      const Result<void> whole = LoadFolder(folder_, Scan::kEverything);
      ASSERT_FALSE(whole.has_value());
      EXPECT_TRUE(RefusesWith(whole.error(), RejectionCode::kWeightNotFinite));
      EXPECT_THAT(Describe(whole.error()),
                  HasSubstr("nan at [" + std::to_string(expert.value()) + ","));
    }
  }
}

// What refuses one load disturbs no other: the same files, put right, load.
TEST_F(FiniteLoad, T1_ARefusedLoadIsRetried) {
  const auto router = manifest_->Find(model::Role::kRouter, LayerId(0));
  const model::FileRange& range = manifest_->weights()[*router].source;
  {
    const Poison poison(FileOf(range), range.begin_bytes);
    EXPECT_FALSE(LoadFolder(folder_, Scan::kSensitive).has_value());
  }
  EXPECT_TRUE(LoadFolder(folder_, Scan::kSensitive).has_value());
}

}  // namespace
}  // namespace signet::testing
