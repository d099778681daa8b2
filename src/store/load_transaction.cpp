#include "store/load_transaction.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"
#include "store/content_digest.h"
#include "store/content_reader.h"
#include "store/finite_scan.h"
#include "store/rank_loader.h"
#include "store/weight_ranges.h"

namespace signet::store {
namespace {

using model::FileRange;

uint64_t NextGeneration() {
  static std::atomic<uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

LoadTransaction::LoadTransaction(std::shared_ptr<const plan::ModelPlan> plan,
                                 std::vector<backend::Device*> devices)
    : plan_(std::move(plan)), devices_(std::move(devices)) {
  SIGNET_CHECK(static_cast<int>(devices_.size()) == plan_->mesh().num_ranks());
  SIGNET_CHECK(std::any_of(devices_.begin(), devices_.end(),
                           [](auto* device) { return device != nullptr; }));
}

Result<void> LoadTransaction::Read(const Progress& progress, Scan scan) {
  const model::Checkpoint& checkpoint = plan_->manifest().checkpoint();
  SIGNET_RETURN_IF_ERROR(checkpoint.CheckUnchanged());
  backend::Device* const mapper = *std::find_if(
      devices_.begin(), devices_.end(), [](auto* d) { return d != nullptr; });
  for (const model::OpenedFile& file : checkpoint.weight_files()) {
    SIGNET_ASSIGN_OR_RETURN(
        backend::FileMapping mapping,
        mapper->Map(file.descriptor(), Bytes(file.identity().size_bytes),
                    file.path()));
    mappings_.Push(std::move(mapping));
  }
  for (const WeightRange& weights : WeightRanges(*plan_, RanksHere())) {
    const FileRange& range = weights.file_range;
    if (Bytes(range.end_bytes) <= mappings_[range.file].size()) continue;
    return Fail(FailureKind::kChangedFile,
                checkpoint.weight_files()[range.file].path(),
                "a weight lies past the end of its file");
  }
  // A GPU's weights are copied straight into its memory.
  const bool on_gpu = plan_->mesh().device(Rank(0)).is_gpu();
  // Of a whole model only; it reads beside all that follows.
  std::optional<ContentReader> content;
  if ((on_gpu || scan == Scan::kEverything) &&
      RanksHere().size() == devices_.size()) {
    content.emplace(plan_->manifest());
  }
  // Nor is it said how far a scan of a few weights has come.
  const bool is_quick = on_gpu && scan == Scan::kSensitive;
  SIGNET_RETURN_IF_ERROR(
      ReadRanges(/*populate=*/!on_gpu, scan, is_quick ? Progress() : progress));
  for (int r = 0; r < plan_->mesh().num_ranks(); ++r) {
    backend::Device* const device = devices_[static_cast<size_t>(r)];
    if (device == nullptr) {
      ranks_.emplace_back();
      continue;
    }
    SIGNET_ASSIGN_OR_RETURN(
        WeightVersion::RankWeights weights,
        LoadRank(backend::LoadKey(), *plan_, mappings_, Rank(r), *device,
                 on_gpu ? progress : Progress()));
    ranks_.push_back(std::move(weights));
  }
  if (content) {
    SIGNET_ASSIGN_OR_RETURN(content_, content->Finish());
  }
  // A file may have changed while it was read.
  return checkpoint.CheckUnchanged();
}

std::vector<Rank> LoadTransaction::RanksHere() const {
  std::vector<Rank> ranks;
  for (size_t r = 0; r < devices_.size(); ++r) {
    if (devices_[r] != nullptr) ranks.push_back(Rank(static_cast<int32_t>(r)));
  }
  return ranks;
}

Result<void> LoadTransaction::ReadRanges(bool populate, Scan scan,
                                         const Progress& progress) {
  std::vector<WeightRange> ranges = WeightRanges(*plan_, RanksHere());
  const auto is_scanned = [&](const WeightRange& range) {
    return scan == Scan::kEverything || range.is_sensitive;
  };
  if (!populate) {
    std::erase_if(ranges,
                  [&](const auto& range) { return !is_scanned(range); });
  }
  const model::Checkpoint& checkpoint = plan_->manifest().checkpoint();
  FiniteScan finite(checkpoint);
  std::vector<std::byte> piece(ContentDigest::kPieceBytes);
  Bytes total;
  for (const WeightRange& range : ranges) {
    total += Bytes(range.file_range.size_bytes());
  }
  Bytes done;
  if (progress) progress(done, total);
  for (const WeightRange& weights : ranges) {
    const model::OpenedFile& file =
        checkpoint.weight_files()[weights.file_range.file];
    for (const FileRange& range : ContentDigest::Pieces(weights.file_range)) {
      const Bytes size(range.size_bytes());
      if (populate) {
        const backend::FileMapping& mapping = mappings_[range.file];
        if (Result<void> there =
                mapping.Populate(Bytes(range.begin_bytes), size, file.path());
            !there) {
          // A file cut short since it was mapped is told as that.
          SIGNET_RETURN_IF_ERROR(checkpoint.CheckUnchanged());
          return there;
        }
      }
      if (is_scanned(weights)) {
        SIGNET_RETURN_IF_ERROR(
            file.ReadAt(range.begin_bytes, piece.data(), size.value()));
        finite.Check(range, weights.dtype,
                     std::span(piece).first(size.value()));
      }
      done += size;
      if (progress) progress(done, total);
    }
  }
  return finite.Finish();
}

Result<void> LoadTransaction::CommitTables(Rank rank) {
  WeightVersion::RankWeights& held = ranks_[static_cast<size_t>(rank.value())];
  const backend::Memory& memory = held.experts;
  backend::Device* device = devices_[static_cast<size_t>(rank.value())];
  SIGNET_CHECK(memory.empty() ||
               memory.device()->facts().identity == device->facts().identity);
  const auto lies_within = [](const void* data, uint64_t bytes,
                              std::span<const std::byte> range) {
    const auto begin = reinterpret_cast<uintptr_t>(data);
    const auto first = reinterpret_cast<uintptr_t>(range.data());
    return begin >= first && begin - first <= range.size() &&
           bytes <= range.size() - (begin - first);
  };
  const auto is_held = [&](const void* data, uint64_t bytes) {
    if (!memory.empty()) {
      return lies_within(data, bytes, {memory.data(), memory.size().value()});
    }
    return std::any_of(mappings_.begin(), mappings_.end(),
                       [&](const backend::FileMapping& mapping) {
                         return lies_within(data, bytes, mapping.bytes());
                       });
  };
  for (WeightVersion::ExpertTable& table : held.tables) {
    const plan::ExpertView::Facts& facts =
        plan_->experts().View(table.layer, rank)->facts();
    SIGNET_CHECK(static_cast<int64_t>(table.experts.size()) == facts.num_local);
    const auto elements =
        static_cast<uint64_t>(facts.local_width * facts.hidden);
    const uint64_t gate_up = elements * SizeOf(facts.gate_up_dtype);
    const uint64_t down = elements * SizeOf(facts.down_dtype);
    for (const backend::ExpertPointers& expert : table.experts) {
      SIGNET_CHECK(is_held(expert.gate, gate_up) &&
                   is_held(expert.up, gate_up) && is_held(expert.down, down));
    }
    SIGNET_ASSIGN_OR_RETURN(
        table.committed, device->CommitTable(backend::LoadKey(), table.experts,
                                             table.global_to_local, memory,
                                             facts.table_offset_bytes));
  }
  return {};
}

Result<std::shared_ptr<const WeightVersion>> LoadTransaction::Commit() && {
  SIGNET_CHECK(static_cast<int>(ranks_.size()) == plan_->mesh().num_ranks());
  for (int r = 0; r < plan_->mesh().num_ranks(); ++r) {
    SIGNET_RETURN_IF_ERROR(CommitTables(Rank(r)));
  }
  return std::make_shared<const WeightVersion>(
      PassKey<LoadTransaction>(),
      WeightVersion::Content{.manifest = plan_->manifest_ptr(),
                             .contract = plan_->contract_id(),
                             .generation = NextGeneration(),
                             .content = content_,
                             .mappings = std::move(mappings_),
                             .ranks = std::move(ranks_)});
}

}  // namespace signet::store
