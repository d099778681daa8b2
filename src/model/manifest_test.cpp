#include "model/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>

#include "model/checkpoint_testing.h"

namespace signet::model {
namespace {

using nlohmann::json;
using testing::Has;
using ::testing::HasSubstr;
using testing::TempFolder;
using testing::TensorsOf;
using testing::TestLayout;
using testing::TestTensor;
using testing::Text;
using testing::TinyConfig;

using ManifestResult = Result<std::shared_ptr<const Manifest>>;

ManifestResult Build(const json& config,
                     const std::vector<TestTensor>& tensors) {
  const TempFolder folder;
  Result<Checkpoint> checkpoint =
      testing::WriteAndOpen(folder, config, tensors);
  if (!checkpoint.has_value()) {
    return tl::unexpected<Error>(checkpoint.error());
  }
  return BuildManifest(
      std::make_shared<const Checkpoint>(*std::move(checkpoint)));
}

TestTensor& Named(std::vector<TestTensor>& tensors, std::string_view name) {
  return *std::find_if(tensors.begin(), tensors.end(),
                       [&](const TestTensor& t) { return t.name == name; });
}

void Remove(std::vector<TestTensor>* tensors, std::string_view part) {
  std::erase_if(*tensors, [&](const TestTensor& t) {
    return t.name.find(part) != std::string::npos;
  });
}

const json kMoe = TinyConfig(Family::kQwen35Moe);
const json kDense = TinyConfig(Family::kQwen35);
constexpr const char* kFused0 = "model.layers.0.mlp.experts.gate_up_proj";
constexpr const char* kDown0 = "model.layers.0.mlp.experts.down_proj";

TEST(Manifest, W1_ConsumesEveryTensor) {
  const auto manifest = Build(kMoe, TensorsOf(kMoe));
  ASSERT_TRUE(manifest.has_value()) << Text(manifest);
  const Manifest& m = **manifest;
  // 3 model-wide; 2 norms, 9 or 6 of the mixer, 7 of the MoE part a layer.
  EXPECT_EQ(m.num_language_tensors(), 3 + (2 + 9 + 7) + (2 + 6 + 7));
  EXPECT_TRUE(m.skipped().empty());
  uint64_t size_bytes = 0;
  for (const HeaderTensor& tensor : m.checkpoint().tensors()) {
    size_bytes += tensor.end_bytes - tensor.begin_bytes;
  }
  EXPECT_EQ(m.language_bytes(), Bytes(size_bytes));
  EXPECT_EQ(m.digest(), m.checkpoint().digest());
}

TEST(Manifest, W1_RefusesUnknownTensorsByName) {
  std::vector<TestTensor> tensors = TensorsOf(kMoe);
  tensors.push_back({"model.layers.0.linear_attn.bias", {1}});
  tensors.push_back({"model.layers.0.mlp.experts.0.bias", {1}});
  tensors.push_back({"model.layers.2.input_layernorm.weight", {8}});
  const auto manifest = Build(kMoe, tensors);
  EXPECT_TRUE(Has(manifest, RejectionCode::kTensorUnknown));
  EXPECT_THAT(Text(manifest), HasSubstr("linear_attn.bias"));
  EXPECT_THAT(Text(manifest), HasSubstr("experts.0.bias"));
  EXPECT_THAT(Text(manifest), HasSubstr("layers.2.input_layernorm"));
}

TEST(Manifest, W1_RefusesMissingTensorsByName) {
  std::vector<TestTensor> tensors = TensorsOf(kMoe);
  Remove(&tensors, "layers.1.self_attn.q_norm");
  Remove(&tensors, "lm_head");
  Remove(&tensors, "layers.0.mlp.experts.down_proj");
  const auto manifest = Build(kMoe, tensors);
  EXPECT_TRUE(Has(manifest, RejectionCode::kTensorMissing));
  EXPECT_THAT(Text(manifest), HasSubstr("layers.1.self_attn.q_norm.weight"));
  EXPECT_THAT(Text(manifest), HasSubstr("lm_head.weight"));
  EXPECT_THAT(Text(manifest), HasSubstr(kDown0));
}

TEST(Manifest, W1_SkipsByNamedRulesOnly) {
  std::vector<TestTensor> tensors = TensorsOf(kMoe, "model.language_model.");
  tensors.push_back({"model.visual.patch_embed.proj.bias", {4}});
  tensors.push_back({"visual.pos_embed.weight", {3}});
  // A dtype that we do not compute with is no matter where nothing is read.
  tensors.push_back({"mtp.fc.weight", {2, 4}, "F8_E4M3"});
  const auto manifest = Build(kMoe, tensors);
  ASSERT_TRUE(manifest.has_value()) << Text(manifest);
  ASSERT_EQ((*manifest)->skipped().size(), 3u);
  EXPECT_EQ((*manifest)->skipped()[0].rule, "vision");
  EXPECT_EQ((*manifest)->skipped()[1].rule, "mtp");
  EXPECT_EQ((*manifest)->skipped()[1].size, Bytes(8));
  EXPECT_EQ((*manifest)->num_language_tensors(), 36);
  tensors.push_back({"model.audio.x", {1}});
  EXPECT_TRUE(Has(Build(kMoe, tensors), RejectionCode::kTensorUnknown));
}

TEST(Manifest, W1_ListsTwentyNamesAndCountsTheRest) {
  std::vector<TestTensor> tensors = TensorsOf(kDense);
  for (int i = 0; i < 50; ++i) {
    tensors.push_back({"extra." + std::to_string(i), {1}});
  }
  const auto manifest = Build(kDense, tensors);
  ASSERT_FALSE(manifest.has_value());
  EXPECT_EQ(std::get<Rejections>(manifest.error()).list().size(), 21u);
  EXPECT_THAT(Text(manifest), HasSubstr("30 more"));
}

TEST(Manifest, W2_EntriesStateEverythingALoaderNeeds) {
  std::vector<TestTensor> tensors = TensorsOf(kMoe);
  Named(tensors, "model.layers.0.linear_attn.A_log").dtype = "F32";
  const auto result = Build(kMoe, tensors);
  ASSERT_TRUE(result.has_value()) << Text(result);
  const Manifest& m = **result;
  const auto entry = [&](Role role, int layer) -> const WeightEntry& {
    return m.weights()[m.Find(role, LayerId(layer)).value()];
  };
  const WeightEntry& conv = entry(Role::kConv, 0);
  EXPECT_EQ(conv.name, "model.layers.0.linear_attn.conv1d.weight");
  EXPECT_EQ(conv.layer, LayerId(0));
  EXPECT_EQ(conv.shape, (tensor::Shape{40, 4}));  // stored [40, 1, 4]
  EXPECT_EQ(conv.row_stride_bytes, 8u);
  EXPECT_EQ(conv.shard, ShardPolicy::kQkvRowBlocks);
  EXPECT_EQ(conv.input_basis, tensor::Basis::kNatural);
  EXPECT_TRUE(conv.sidecars.empty());
  EXPECT_FALSE(conv.alias_of.has_value());
  const HeaderTensor* stored = m.checkpoint().Find(conv.name);
  EXPECT_EQ(conv.source.begin_bytes, stored->begin_bytes);
  EXPECT_EQ(conv.source.end_bytes, stored->end_bytes);
  EXPECT_EQ(conv.source.begin_bytes % conv.alignment_bytes, 0u);
  EXPECT_NE(conv.source.begin_bytes % (2 * conv.alignment_bytes), 0u);
  EXPECT_EQ(entry(Role::kALog, 0).dtype, tensor::DType::kF32);
  EXPECT_EQ(entry(Role::kInProjA, 0).dtype, tensor::DType::kBF16);
  EXPECT_EQ(entry(Role::kQProj, 1).shape, (tensor::Shape{64, 8}));
  EXPECT_EQ(entry(Role::kQProj, 1).shard, ShardPolicy::kHeadRows);
  EXPECT_EQ(entry(Role::kOProj, 1).shard, ShardPolicy::kColumns);
  EXPECT_EQ(entry(Role::kSharedUp, 1).shard, ShardPolicy::kRows);
  EXPECT_FALSE(m.Find(Role::kQProj, LayerId(0)).has_value());
  EXPECT_FALSE(m.Find(Role::kMlpUp, LayerId(0)).has_value());
  EXPECT_TRUE(m.Find(Role::kFinalNorm, std::nullopt).has_value());
}

TEST(Manifest, W2_ATiedHeadIsAnAliasOfTheEmbedding) {
  json config = kDense;
  config["tie_word_embeddings"] = true;
  const std::vector<TestTensor> tensors = TensorsOf(config);
  const auto result = Build(config, tensors);
  ASSERT_TRUE(result.has_value()) << Text(result);
  const Manifest& m = **result;
  const WeightId owner = m.Find(Role::kEmbedding, std::nullopt).value();
  const WeightEntry& head =
      m.weights()[m.Find(Role::kLmHead, std::nullopt).value()];
  EXPECT_EQ(head.alias_of, owner);
  EXPECT_EQ(head.source.begin_bytes, m.weights()[owner].source.begin_bytes);
  EXPECT_EQ(head.shard, ShardPolicy::kVocabularyRows);
  EXPECT_EQ(m.weights()[owner].shard, ShardPolicy::kReplicate);
  EXPECT_EQ(m.num_language_tensors(), static_cast<int64_t>(tensors.size()));
}

TEST(Manifest, ATiedCheckpointThatStoresAHeadIsRefused) {
  json config = kDense;
  std::vector<TestTensor> tensors = TensorsOf(config);
  config["tie_word_embeddings"] = true;
  EXPECT_TRUE(Has(Build(config, tensors), RejectionCode::kAliasInvalid));
}

TEST(Manifest, W3_FusedAndPerExpertGiveTheSameGroup) {
  const auto fused = Build(kMoe, TensorsOf(kMoe));
  const auto single =
      Build(kMoe, TensorsOf(kMoe, "model.", TestLayout::kPerExpert));
  ASSERT_TRUE(fused.has_value()) << Text(fused);
  ASSERT_TRUE(single.has_value()) << Text(single);
  ASSERT_EQ((*fused)->expert_groups().size(), 2u);
  ASSERT_EQ((*single)->expert_groups().size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    const ExpertGroup& a = (*fused)->expert_groups()[i];
    const ExpertGroup& b = (*single)->expert_groups()[i];
    EXPECT_EQ(a.layout, ExpertLayout::kFused);
    EXPECT_EQ(b.layout, ExpertLayout::kPerExpert);
    EXPECT_EQ(a.layer, b.layer);
    EXPECT_EQ(a.num_experts, b.num_experts);
    EXPECT_EQ(a.top_k, b.top_k);
    EXPECT_EQ(a.hidden, b.hidden);
    EXPECT_EQ(a.width, b.width);
    EXPECT_EQ(a.router, b.router);
    for (const auto member :
         {&ExpertGroup::gate, &ExpertGroup::up, &ExpertGroup::down}) {
      EXPECT_EQ((a.*member).shape, (b.*member).shape);
      EXPECT_EQ((a.*member).dtype, (b.*member).dtype);
      EXPECT_EQ((a.*member).input_basis, (b.*member).input_basis);
      ASSERT_EQ((a.*member).sources.size(), 4u);
      ASSERT_EQ((b.*member).sources.size(), 4u);
      for (int e = 0; e < 4; ++e) {
        EXPECT_EQ((a.*member).sources[ExpertId(e)].size_bytes(),
                  (b.*member).sources[ExpertId(e)].size_bytes());
      }
    }
  }
}

TEST(Manifest, W3_FusedRowsAreGateThenUp) {
  const auto result = Build(kMoe, TensorsOf(kMoe));
  const Manifest& m = **result;
  const ExpertGroup& group = *m.FindExperts(LayerId(0));
  const HeaderTensor* fused = m.checkpoint().Find(kFused0);
  EXPECT_EQ(group.gate.shape, (tensor::Shape{6, 8}));
  EXPECT_EQ(group.down.shape, (tensor::Shape{8, 6}));
  const uint64_t half = 6 * 8 * 2;
  for (int e = 0; e < 4; ++e) {
    const uint64_t begin =
        fused->begin_bytes + static_cast<uint64_t>(e) * 2 * half;
    EXPECT_EQ(group.gate.sources[ExpertId(e)].begin_bytes, begin);
    EXPECT_EQ(group.gate.sources[ExpertId(e)].end_bytes, begin + half);
    EXPECT_EQ(group.up.sources[ExpertId(e)].begin_bytes, begin + half);
    EXPECT_EQ(group.up.sources[ExpertId(e)].end_bytes, begin + 2 * half);
  }
  EXPECT_EQ(group.up.sources[ExpertId(3)].end_bytes, fused->end_bytes);
  EXPECT_EQ(group.down.sources[ExpertId(3)].end_bytes,
            m.checkpoint().Find(kDown0)->end_bytes);
  EXPECT_EQ(m.FindExperts(LayerId(2)), nullptr);
}

TEST(Manifest, W3_TheFamilyStatesTheOrientation) {
  std::vector<TestTensor> tensors = TensorsOf(kMoe);
  Named(tensors, kFused0).shape = {4, 8, 12};
  Named(tensors, kDown0).shape = {4, 6, 8};
  EXPECT_TRUE(Has(Build(kMoe, tensors), RejectionCode::kTensorShapeMismatch));
  // H == 2I fits both ways and is taken as stated.
  json square = kMoe;
  square["moe_intermediate_size"] = 4;
  EXPECT_TRUE(Build(square, TensorsOf(square)).has_value());
}

TEST(Manifest, W3_LayersMayDifferInLayoutButAGroupMayNot) {
  std::vector<TestTensor> fused = TensorsOf(kMoe);
  std::vector<TestTensor> single =
      TensorsOf(kMoe, "model.", TestLayout::kPerExpert);
  std::vector<TestTensor> mixed = fused;
  Remove(&mixed, "layers.1.mlp.experts");
  for (const TestTensor& tensor : single) {
    if (tensor.name.starts_with("model.layers.1.mlp.experts.")) {
      mixed.push_back(tensor);
    }
  }
  EXPECT_TRUE(Build(kMoe, mixed).has_value()) << Text(Build(kMoe, mixed));
  // Two whole sets are as wrong as a whole one and a part.
  for (const TestTensor& tensor : single) {
    if (tensor.name.starts_with("model.layers.0.mlp.experts.")) {
      fused.push_back(tensor);
      EXPECT_TRUE(Has(Build(kMoe, fused), RejectionCode::kExpertSetInvalid));
    }
  }
}

TEST(Manifest, P0_RefusesAnExpertSetThatIsNotTheExpectedOne) {
  std::vector<TestTensor> tensors =
      TensorsOf(kMoe, "model.", TestLayout::kPerExpert);
  std::vector<TestTensor> fewer = tensors;
  Remove(&fewer, "layers.0.mlp.experts.2.down_proj");
  const auto incomplete = Build(kMoe, fewer);
  EXPECT_TRUE(Has(incomplete, RejectionCode::kExpertSetInvalid));
  EXPECT_THAT(Text(incomplete), HasSubstr("experts.2.down_proj.weight"));
  std::vector<TestTensor> more = tensors;
  more.push_back({"model.layers.0.mlp.experts.4.up_proj.weight", {6, 8}});
  EXPECT_TRUE(Has(Build(kMoe, more), RejectionCode::kExpertSetInvalid));
  for (const char* odd : {"04", "-1", "99999999999999999999"}) {
    std::vector<TestTensor> unknown = tensors;
    unknown.push_back(
        {std::string("model.layers.0.mlp.experts.") + odd + ".up_proj.weight",
         {6, 8}});
    EXPECT_TRUE(Has(Build(kMoe, unknown), RejectionCode::kTensorUnknown));
  }
}

TEST(Manifest, P0_RefusesMixedFormatsInOneProjection) {
  std::vector<TestTensor> tensors =
      TensorsOf(kMoe, "model.", TestLayout::kPerExpert);
  const std::string prefix = "model.layers.0.mlp.experts.";
  std::vector<TestTensor> mixed = tensors;
  Named(mixed, prefix + "1.down_proj.weight").dtype = "F16";
  EXPECT_TRUE(Has(Build(kMoe, mixed), RejectionCode::kExpertFormatsMixed));
  // All of down in another dtype is one format a projection.
  for (int e = 0; e < 4; ++e) {
    Named(tensors, prefix + std::to_string(e) + ".down_proj.weight").dtype =
        "F16";
  }
  EXPECT_TRUE(Build(kMoe, tensors).has_value());
  // Gate and up are one product.
  for (int e = 0; e < 4; ++e) {
    Named(tensors, prefix + std::to_string(e) + ".up_proj.weight").dtype =
        "F16";
  }
  EXPECT_TRUE(Has(Build(kMoe, tensors), RejectionCode::kExpertFormatsMixed));
}

TEST(Manifest, P0_RefusesFusedShapesThatCannotBe) {
  std::vector<TestTensor> tensors = TensorsOf(kMoe);
  Named(tensors, kFused0).shape = {4, 11, 8};
  EXPECT_TRUE(Has(Build(kMoe, tensors), RejectionCode::kExpertRowsOdd));
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{3, 12, 8}, {4, 14, 8}, {4, 12, 9}, {48, 8}}) {
    Named(tensors, kFused0).shape = shape;
    EXPECT_TRUE(Has(Build(kMoe, tensors), RejectionCode::kTensorShapeMismatch));
  }
  tensors = TensorsOf(kMoe);
  Named(tensors, kDown0).shape = {4, 6, 8};  // [I, H]
  EXPECT_TRUE(Has(Build(kMoe, tensors), RejectionCode::kTensorShapeMismatch));
}

TEST(Manifest, RefusesShapesDTypesAndAlignments) {
  std::vector<TestTensor> tensors = TensorsOf(kDense);
  const std::string norm = "model.norm.weight";
  Named(tensors, norm).shape = {9};
  const auto shape = Build(kDense, tensors);
  EXPECT_TRUE(Has(shape, RejectionCode::kTensorShapeMismatch));
  EXPECT_THAT(Text(shape), HasSubstr("got [9]; want [8]"));
  Named(tensors, norm).shape = {8};
  for (const char* dtype : {"F64", "I32", "F8_E4M3"}) {
    Named(tensors, norm).dtype = dtype;
    EXPECT_TRUE(Has(Build(kDense, tensors), RejectionCode::kDTypeUnsupported));
  }
  Named(tensors, norm).dtype = "F16";
  EXPECT_TRUE(Build(kDense, tensors).has_value());
  // One odd byte that a rule skips pushes the rest off.
  tensors.insert(tensors.begin(), {"visual.flag", {1}, "U8"});
  EXPECT_TRUE(Has(Build(kDense, tensors), RejectionCode::kTensorMisaligned));
}

TEST(Manifest, RefusesAConv1dInTheTransposedForm) {
  std::vector<TestTensor> tensors = TensorsOf(kDense);
  Named(tensors, "model.layers.0.linear_attn.conv1d.weight").shape = {40, 4, 1};
  EXPECT_TRUE(Has(Build(kDense, tensors), RejectionCode::kTensorShapeMismatch));
}

TEST(Manifest, RefusesTwoLanguageModels) {
  std::vector<TestTensor> tensors = TensorsOf(kDense);
  tensors.push_back({"model.language_model.norm.weight", {8}});
  EXPECT_TRUE(Has(Build(kDense, tensors), RejectionCode::kSourceAmbiguous));
}

TEST(Manifest, A1_ClassifiesFromConfigAndTensorsTogether) {
  EXPECT_TRUE(
      Has(Build(kMoe, TensorsOf(kDense)), RejectionCode::kFamilyUnsupported));
  EXPECT_TRUE(
      Has(Build(kDense, TensorsOf(kMoe)), RejectionCode::kFamilyUnsupported));
  EXPECT_TRUE(Has(Build({{"model_type", "llama"}}, TensorsOf(kMoe)),
                  RejectionCode::kFamilyUnsupported));
}

TEST(Manifest, W4_OneGroupAMoeLayerInLayerOrder) {
  json config = kMoe;
  config["num_hidden_layers"] = 4;
  config.erase("layer_types");
  config["mlp_only_layers"] = {1};
  config["intermediate_size"] = 10;
  const auto result = Build(config, TensorsOf(config));
  ASSERT_TRUE(result.has_value()) << Text(result);
  const Manifest& m = **result;
  ASSERT_EQ(m.expert_groups().size(), 3u);
  for (const int layer : {0, 2, 3}) {
    EXPECT_NE(m.FindExperts(LayerId(layer)), nullptr);
  }
  EXPECT_EQ(m.FindExperts(LayerId(1)), nullptr);
  EXPECT_TRUE((*Build(kDense, TensorsOf(kDense)))->expert_groups().empty());
}

}  // namespace
}  // namespace signet::model
