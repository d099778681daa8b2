#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "model/expert_sources.h"
#include "model/families/qwen3_5.h"
#include "model/manifest.h"
#include "model/tensor_set.h"

namespace signet::model {

/// Makes one Manifest: declare, take, prove, list what is left.
class ManifestBuilder {
 public:
  explicit ManifestBuilder(std::shared_ptr<const Checkpoint> checkpoint)
      : checkpoint_(std::move(checkpoint)), tensors_(*checkpoint_, &capped_) {}

  Result<std::shared_ptr<const Manifest>> Build() {
    const std::string config_path = checkpoint_->folder() + "/config.json";
    SIGNET_ASSIGN_OR_RETURN(
        manifest_.config_,
        ParseConfig(checkpoint_->config_json(), config_path));
    SIGNET_ASSIGN_OR_RETURN(const std::string_view prefix, DetectPrefix());
    SIGNET_RETURN_IF_ERROR(CheckClassification(prefix, config_path));

    const Declaration declared = DeclareQwen35(manifest_.config_, prefix);
    for (const DeclaredWeight& weight : declared.weights) AddWeight(weight);
    AddTiedHead();
    for (const DeclaredExperts& experts : declared.experts) {
      AddExperts(experts);
    }
    SkipOrRefuseTheRest();
    if (!capped_.empty()) {
      RejectionList rejections;
      capped_.FlushInto(checkpoint_->folder(), &rejections);
      return rejections.Take();
    }
    manifest_.digest_ = checkpoint_->digest();
    manifest_.checkpoint_ = std::move(checkpoint_);
    return std::make_shared<const Manifest>(std::move(manifest_));
  }

 private:
  /// The prefix under which the checkpoint keeps the language model.
  Result<std::string_view> DetectPrefix() {
    std::vector<std::pair<std::string_view, std::string_view>> found;
    for (const std::string_view prefix : names_.prefixes) {
      for (const std::string_view part : names_.language_parts) {
        const auto with =
            tensors_.WithPrefix(fmt::format("{}{}", prefix, part));
        if (with.empty()) continue;
        found.emplace_back(prefix, with.front().name);
        break;
      }
    }
    if (found.size() > 1) {
      return Reject(RejectionCode::kSourceAmbiguous, checkpoint_->folder(),
                    "the checkpoint holds two language models",
                    fmt::format("{} and {}", found[0].second, found[1].second));
    }
    return found.empty() ? names_.prefixes.front() : found.front().first;
  }

  /// Config and tensors must tell the same kind of feed-forward part; two
  /// lists of hundreds of names would say it less clearly.
  Result<void> CheckClassification(std::string_view prefix,
                                   const std::string& config_path) {
    bool holds_experts = false;
    bool holds_dense = false;
    for (const HeaderTensor& tensor :
         tensors_.WithPrefix(fmt::format("{}layers.", prefix))) {
      const std::string_view name = tensor.name;
      holds_experts |= name.find(".mlp.experts.") != name.npos;
      holds_dense |= name.find(".mlp.gate_proj.weight") != name.npos;
    }
    const std::vector<LayerConfig>& layers = manifest_.config_.layers;
    const bool wants_experts = std::any_of(
        layers.begin(), layers.end(),
        [](const LayerConfig& l) { return l.mlp == MlpKind::kMoe; });
    if (wants_experts && !holds_experts && holds_dense) {
      return Reject(RejectionCode::kFamilyUnsupported, config_path,
                    "the config states experts, the tensors are dense",
                    manifest_.config_.model_type);
    }
    if (!wants_experts && holds_experts) {
      return Reject(RejectionCode::kFamilyUnsupported, config_path,
                    "the config states no experts, the tensors hold some",
                    manifest_.config_.model_type);
    }
    return {};
  }

  void AddWeight(const DeclaredWeight& weight) {
    const HeaderTensor* tensor = tensors_.Take(weight.name);
    if (tensor == nullptr) {
      tensors_.Missing(weight.name);
      return;
    }
    const bool ok = tensors_.CheckStorage(*tensor) &
                    tensors_.CheckShape(*tensor, weight.stored_shape);
    if (!ok) return;
    const int64_t row = weight.shape[weight.shape.num_dims() - 1];
    WeightEntry entry{
        .name = weight.name,
        .layer = weight.layer,
        .role = weight.role,
        .shape = weight.shape,
        .dtype = *tensor->dtype,
        .source = RangeOf(*tensor),
        .row_stride_bytes = static_cast<uint64_t>(row) * SizeOf(*tensor->dtype),
        .alignment_bytes = uint64_t{1} << std::countr_zero(tensor->begin_bytes),
        .sidecars = {},
        .alias_of = {},
        .shard = weight.shard,
        .input_basis = weight.input_basis,
    };
    Count(1, entry.source.size_bytes());
    PushEntry(std::move(entry));
  }

  /// A tied checkpoint has no lm_head. If it stores one all the same, its
  /// bytes may differ from the embedding's and headers cannot tell: which of
  /// the two is meant is for the config's author to say, so it is refused.
  void AddTiedHead() {
    if (!manifest_.config_.tied_embeddings) return;
    if (const HeaderTensor* stored = tensors_.Take(kQwen35LmHead)) {
      tensors_.Refuse(RejectionCode::kAliasInvalid, *stored,
                      "the config ties lm_head to the embedding, yet the "
                      "checkpoint stores one",
                      "tie_word_embeddings true",
                      "no lm_head.weight, or tie_word_embeddings false");
      return;
    }
    const auto owner = manifest_.Find(Role::kEmbedding, std::nullopt);
    if (!owner) return;  // already noted as missing
    WeightEntry alias = manifest_.weights_[*owner];
    alias.name = kQwen35LmHead;
    alias.role = Role::kLmHead;
    alias.alias_of = owner;
    alias.shard = ShardPolicy::kVocabularyRows;
    PushEntry(std::move(alias));
  }

  void AddExperts(const DeclaredExperts& experts) {
    const int64_t before = std::ssize(tensors_.WithPrefix(experts.prefix));
    std::optional<ExpertSources> sources =
        FindExpertSources(experts, &tensors_);
    const auto router = manifest_.Find(Role::kRouter, experts.layer);
    if (!sources || !router) return;
    uint64_t size_bytes = 0;
    for (const ExpertProjection* projection :
         {&sources->gate, &sources->up, &sources->down}) {
      for (const FileRange& range : projection->sources) {
        size_bytes += range.size_bytes();
      }
    }
    Count(before, size_bytes);
    manifest_.groups_.push_back({
        .layer = experts.layer,
        .num_experts = experts.num_experts,
        .top_k = experts.top_k,
        .hidden = experts.hidden,
        .width = experts.width,
        .layout = sources->layout,
        .gate = std::move(sources->gate),
        .up = std::move(sources->up),
        .down = std::move(sources->down),
        .router = *router,
    });
  }

  void SkipOrRefuseTheRest() {
    for (const HeaderTensor* tensor : tensors_.Untaken()) {
      const auto rule =
          std::find_if(names_.skip_rules.begin(), names_.skip_rules.end(),
                       [&](const SkipRule& r) {
                         return tensor->name.starts_with(r.prefix);
                       });
      if (rule == names_.skip_rules.end()) {
        tensors_.Refuse(RejectionCode::kTensorUnknown, *tensor,
                        "no part of the model is named so");
        continue;
      }
      manifest_.skipped_.push_back(
          {tensor->name, std::string(rule->name),
           Bytes(tensor->end_bytes - tensor->begin_bytes)});
    }
  }

  void PushEntry(WeightEntry entry) {
    const auto key = std::pair(entry.role, entry.layer);
    manifest_.by_role_.emplace(key, manifest_.weights_.Push(std::move(entry)));
  }

  void Count(int64_t num_tensors, uint64_t size_bytes) {
    manifest_.num_language_tensors_ += num_tensors;
    manifest_.language_bytes_ += Bytes(size_bytes);
  }

  std::shared_ptr<const Checkpoint> checkpoint_;
  FamilyNames names_ = Qwen35Names();
  CappedRejections capped_;
  TensorSet tensors_;
  Manifest manifest_;
};

Result<std::shared_ptr<const Manifest>> BuildManifest(
    std::shared_ptr<const Checkpoint> checkpoint) {
  return ManifestBuilder(std::move(checkpoint)).Build();
}

}  // namespace signet::model
