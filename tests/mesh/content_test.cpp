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
#include "backend/forwarding_device.h"
#include "store/content_reader.h"
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

std::shared_ptr<const plan::ModelPlan> PlanOn(const fs::path& folder,
                                              const topology::Mesh& mesh) {
  return ValueOrDie(plan::MakeModelPlan(
      OpenManifest(folder), mesh,
      {.context = 32, .page_tokens = 8, .prefill_chunks = {4}}));
}

// Planned for a GPU: every weight is copied, and a CPU can stand in for it.
std::shared_ptr<const plan::ModelPlan> PlanOnGpu(const fs::path& folder) {
  return PlanOn(
      folder,
      ValueOrDie(topology::Mesh::Make(
          ValueOrDie(topology::MeshSpec::Parse("single")),
          {{.backend = "gpu", .uuid = "GPU-1", .pci = "", .architecture = ""}},
          topology::Emulation::kRefused)));
}

// As a load of this plan computes it. The ranks of `here` are in this process.
std::optional<Digest> ContentOfLoad(
    const std::shared_ptr<const plan::ModelPlan>& plan, store::Scan scan,
    int here) {
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
    const auto plan = PlanOn(folder, CpuMesh(mesh));
    EXPECT_EQ(ContentOfLoad(plan, store::Scan::kEverything, ranks), content);
    EXPECT_EQ(ContentOfLoad(plan, store::Scan::kSensitive, ranks),
              std::nullopt);
  }
  EXPECT_EQ(ContentOfLoad(PlanOn(folder, CpuMesh("pp=2")),
                          store::Scan::kEverything, 1),
            std::nullopt);
}

TEST(Content, W2_ALoadOntoAGpuAlwaysDigests) {
  const fs::path folder = Checkpoint("content_gpu");
  const auto plan = PlanOnGpu(folder);
  for (const store::Scan scan :
       {store::Scan::kSensitive, store::Scan::kEverything}) {
    EXPECT_EQ(ContentOfLoad(plan, scan, 1), ContentNow(folder));
  }
}

// Cuts every weight file short once all of it was copied.
class CutsFiles final : public backend::ForwardingDevice {
 public:
  CutsFiles(backend::Device& inner, const model::Checkpoint& checkpoint)
      : ForwardingDevice(inner), checkpoint_(checkpoint) {}
  Result<void> Settle(backend::LoadKey key,
                      const backend::CopyProgress& progress) override {
    for (const model::OpenedFile& file : checkpoint_.weight_files()) {
      fs::resize_file(file.path(), 8);
    }
    return ForwardingDevice::Settle(key, progress);
  }

 private:
  const model::Checkpoint& checkpoint_;
};

// However far the digest has come by then.
TEST(Content, A3_AFileCutShortDuringALoadOntoAGpuIsAFailure) {
  const fs::path folder = Checkpoint("content_gpu_cut");
  const auto plan = PlanOnGpu(folder);
  const auto cpu = backend::cpu::MakeCpuDevice(0, 1);
  CutsFiles device(*cpu, plan->manifest().checkpoint());
  store::LoadTransaction transaction(plan, {&device});
  const Result<void> read = transaction.Read({});
  ASSERT_FALSE(read.has_value());
  EXPECT_EQ(std::get<Failure>(read.error()).kind, FailureKind::kChangedFile);
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
