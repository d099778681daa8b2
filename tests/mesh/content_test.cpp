// The digest of what a model's weights are (contract W2): of all of them and of
// nothing else, whatever the mesh that reads them.

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/cpu/cpu_device.h"
#include "store/content_digest.h"
#include "store/load_transaction.h"
#include "store/weight_ranges.h"
#include "support/running_model.h"
#include "support/temporary_folder.h"
#include "support/tiny_checkpoint.h"

namespace signet::testing {
namespace {

namespace fs = std::filesystem;

// With tensors that no program reads, which the manifest skips.
fs::path Checkpoint(const std::string& name) {
  const fs::path folder = TemporaryFolder() / name;
  fs::remove_all(folder);
  ValueOrDie(WriteTinyCheckpoint("moe_fused_nested", folder));
  return folder;
}

Digest ContentNow(const fs::path& folder) {
  return ValueOrDie(store::ContentOf(*OpenManifest(folder)));
}

// As a load on this mesh computes it. The ranks of `here` are in this process.
std::optional<Digest> ContentOfLoad(const fs::path& folder,
                                    std::string_view mesh, store::Scan scan,
                                    int here) {
  const auto plan = ValueOrDie(plan::MakeModelPlan(
      OpenManifest(folder), CpuMesh(mesh),
      {.context = 32, .page_tokens = 8, .prefill_chunks = {4}}));
  std::vector<std::unique_ptr<backend::Device>> devices;
  std::vector<backend::Device*> given(
      static_cast<size_t>(plan->mesh().num_ranks()));
  for (int r = 0; r < here; ++r) {
    devices.push_back(backend::cpu::MakeCpuDevice(r, 1));
    given[static_cast<size_t>(r)] = devices.back().get();
  }
  store::LoadTransaction transaction(plan, given);
  ValueOrDie(transaction.Read({}, scan));
  return ValueOrDie(std::move(transaction).Commit())->content_digest();
}

// Flips the lowest bit of a byte, and again when it goes.
class Flip {
 public:
  Flip(const fs::path& path, uint64_t at) : path_(path), at_(at) { Do(); }
  ~Flip() { Do(); }
  Flip(const Flip&) = delete;
  Flip& operator=(const Flip&) = delete;

 private:
  void Do() const {
    std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(at_));
    const char byte = static_cast<char>(file.get() ^ 1);
    file.seekp(static_cast<std::streamoff>(at_));
    file.put(byte);
  }
  fs::path path_;
  uint64_t at_;
};

TEST(Content, W2_EveryMeshSeesTheSame) {
  const fs::path folder = Checkpoint("content_meshes");
  const Digest content = ContentNow(folder);
  for (const auto& [mesh, ranks] :
       {std::pair("single", 1), {"ep=2", 2}, {"pp=2", 2}, {"tp=2", 2}}) {
    SCOPED_TRACE(mesh);
    EXPECT_EQ(ContentOfLoad(folder, mesh, store::Scan::kEverything, ranks),
              content);
    EXPECT_EQ(ContentOfLoad(folder, mesh, store::Scan::kSensitive, ranks),
              std::nullopt);
  }
  EXPECT_EQ(ContentOfLoad(folder, "pp=2", store::Scan::kEverything, 1),
            std::nullopt);
}

TEST(Content, W2_OneBitOfAnyWeightIsAnother) {
  const fs::path folder = Checkpoint("content_bits");
  const auto manifest = OpenManifest(folder);
  const auto& files = manifest->checkpoint().weight_files();
  const Digest content = ContentNow(folder);
  const auto is_seen = [&](FileId file, uint64_t at) {
    const Flip flip(files[file].path(), at);
    return ContentNow(folder) != content;
  };
  for (const store::WeightRange& weights : store::WeightRanges(*manifest)) {
    const model::FileRange& range = weights.file_range;
    EXPECT_TRUE(is_seen(range.file, range.begin_bytes));
    EXPECT_TRUE(is_seen(range.file, range.end_bytes - 1));
  }
  ASSERT_FALSE(manifest->skipped().empty());
  for (const model::SkippedTensor& skipped : manifest->skipped()) {
    const model::HeaderTensor* tensor =
        manifest->checkpoint().Find(skipped.name);
    EXPECT_FALSE(is_seen(tensor->file, tensor->begin_bytes)) << skipped.name;
  }
  EXPECT_EQ(ContentNow(folder), content);
}

TEST(Content, A3_AFileCutShortIsAFailure) {
  const fs::path folder = Checkpoint("content_cut");
  const auto manifest = OpenManifest(folder);
  const model::FileRange last =
      store::WeightRanges(*manifest).back().file_range;
  fs::resize_file(manifest->checkpoint().weight_files()[last.file].path(),
                  last.end_bytes - 1);
  const Result<Digest> content = store::ContentOf(*manifest);
  ASSERT_FALSE(content.has_value());
  EXPECT_EQ(std::get<Failure>(content.error()).kind, FailureKind::kChangedFile);
}

}  // namespace
}  // namespace signet::testing
