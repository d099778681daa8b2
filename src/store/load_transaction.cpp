#include "store/load_transaction.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"

namespace signet::store {
namespace {

using model::FileRange;

uint64_t NextGeneration() {
  static std::atomic<uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

// Every range a program will read, in file order.
std::vector<FileRange> WeightRanges(const model::Manifest& manifest) {
  std::vector<FileRange> ranges;
  for (const model::WeightEntry& entry : manifest.weights()) {
    if (!entry.alias_of) ranges.push_back(entry.source);
  }
  for (const model::ExpertGroup& group : manifest.expert_groups()) {
    for (const model::ExpertProjection* projection :
         {&group.gate, &group.up, &group.down}) {
      ranges.insert(ranges.end(), projection->sources.begin(),
                    projection->sources.end());
    }
  }
  std::sort(ranges.begin(), ranges.end(),
            [](const FileRange& a, const FileRange& b) {
              return std::pair(a.file, a.begin_bytes) <
                     std::pair(b.file, b.begin_bytes);
            });
  return ranges;
}

}  // namespace

LoadTransaction::LoadTransaction(std::shared_ptr<const plan::ModelPlan> plan,
                                 backend::Device* device)
    : plan_(std::move(plan)), device_(device) {}

Result<void> LoadTransaction::Read(const Progress& progress) {
  const model::Checkpoint& checkpoint = plan_->manifest().checkpoint();
  SIGNET_RETURN_IF_ERROR(checkpoint.CheckUnchanged());
  for (const model::OpenedFile& file : checkpoint.weight_files()) {
    SIGNET_ASSIGN_OR_RETURN(
        backend::FileMapping mapping,
        device_->Map(file.descriptor(), Bytes(file.identity().size_bytes),
                     file.path()));
    mappings_.Push(std::move(mapping));
  }
  SIGNET_RETURN_IF_ERROR(PopulateRanges(progress));
  // A file may have changed while it was read.
  return checkpoint.CheckUnchanged();
}

Result<void> LoadTransaction::PopulateRanges(const Progress& progress) {
  constexpr uint64_t kPieceBytes = uint64_t{16} << 20;
  const std::vector<FileRange> ranges = WeightRanges(plan_->manifest());
  const auto& files = plan_->manifest().checkpoint().weight_files();
  Bytes total;
  for (const FileRange& range : ranges) total += Bytes(range.size_bytes());
  Bytes done;
  if (progress) progress(done, total);
  for (const FileRange& range : ranges) {
    const backend::FileMapping& mapping = mappings_[range.file];
    for (uint64_t begin = range.begin_bytes; begin < range.end_bytes;
         begin += kPieceBytes) {
      const Bytes size(std::min(kPieceBytes, range.end_bytes - begin));
      SIGNET_RETURN_IF_ERROR(
          mapping.Populate(Bytes(begin), size, files[range.file].path()));
      done += size;
      if (progress) progress(done, total);
    }
  }
  return {};
}

Result<std::shared_ptr<const WeightVersion>> LoadTransaction::Commit() && {
  const model::Manifest& manifest = plan_->manifest();
  SIGNET_CHECK(mappings_.size() == manifest.checkpoint().weight_files().size());
  for (const FileRange& range : WeightRanges(manifest)) {
    if (Bytes(range.end_bytes) <= mappings_[range.file].size()) continue;
    return Fail(FailureKind::kChangedFile,
                manifest.checkpoint().weight_files()[range.file].path(),
                "a weight lies past the end of its file");
  }
  const auto address = [&](const FileRange& range) -> const void* {
    return mappings_[range.file].data() + range.begin_bytes;
  };
  std::vector<WeightVersion::ExpertTable> tables;
  for (const model::ExpertGroup& group : manifest.expert_groups()) {
    const plan::ExpertView* view =
        plan_->experts().View(group.layer, Rank(0));
    SIGNET_CHECK(view != nullptr);
    WeightVersion::ExpertTable table = {
        .layer = group.layer,
        .experts = std::vector<backend::ExpertPointers>(
            static_cast<size_t>((*view)->num_local)),
        .global_to_local = std::vector<int32_t>(
            static_cast<size_t>((*view)->num_experts), -1)};
    for (const plan::ExpertPlacement& placement : view->partition()) {
      if (placement.owner != (*view)->rank) continue;
      const auto expert = static_cast<size_t>(placement.expert.value());
      table.global_to_local[expert] = placement.slot.value();
      table.experts[static_cast<size_t>(placement.slot.value())] = {
          .gate = address(group.gate.sources[placement.expert]),
          .up = address(group.up.sources[placement.expert]),
          .down = address(group.down.sources[placement.expert])};
    }
    tables.push_back(std::move(table));
  }
  return std::make_shared<const WeightVersion>(
      PassKey<LoadTransaction>(),
      WeightVersion::Content{.manifest = plan_->manifest_ptr(),
                             .contract = plan_->contract_id(),
                             .generation = NextGeneration(),
                             .mappings = std::move(mappings_),
                             .experts = std::move(tables)});
}

}  // namespace signet::store
