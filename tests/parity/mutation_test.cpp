// Anti-vacuity: the comparison that accepts the engine refuses a reference
// with one weight of one layer wrong, whichever weight and however it is wrong.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "model/families/qwen3_5.h"
#include "parity/comparison.h"
#include "parity/engine_trace.h"
#include "parity/golden.h"
#include "support/checkpoints.h"
#include "support/oracle_mutations.h"
#include "support/running_model.h"
#include "support/tiny_checkpoint.h"

namespace signet::testing {
namespace {

// Of the golden's prompt: the first are prefilled, the others decoded.
constexpr int kPositions = 16;
constexpr int kPrompt = 12;

/// A wrong reference, and what is wrong with it.
struct Mutant {
  std::string text;
  OracleModel model;
};

// `mlp.gate.weight` of `layers.3.mlp.gate.weight`; model-wide names are kinds.
std::string KindOfTensor(const std::string& name) {
  if (!name.starts_with("layers.")) return name;
  return name.substr(name.find('.', std::string_view("layers.").size()) + 1);
}

// Names without a layer come first.
int LayerNumber(const std::string& name) {
  return name.starts_with("layers.") ? LayerOf(name) : -1;
}

// The tensors of the family's declaration for this model, by the oracle's
// names: without prefix, experts fused.
std::set<std::string> DeclaredTensors(const model::ModelConfig& config) {
  const model::Declaration declaration =
      model::DeclareQwen35(config, /*prefix=*/"");
  std::set<std::string> names;
  for (const model::DeclaredWeight& weight : declaration.weights) {
    names.insert(weight.name);
  }
  for (const model::DeclaredExperts& experts : declaration.experts) {
    names.insert(experts.prefix + "gate_up_proj");
    names.insert(experts.prefix + "down_proj");
  }
  return names;
}

/// Makes every mutant of one tensor.
class Mutator {
 public:
  Mutator(const OracleModel& model, const std::string& name)
      : model_(model),
        name_(name),
        kind_(KindOfTensor(name)),
        shape_(model.tensors.at(name).shape),
        alone_{model.config, {{name, model.tensors.at(name)}}} {}

  std::vector<Mutant> Run() && {
    Add("zeroed", ZeroKind(alone_, name_));
    if (shape_.size() >= 2 && shape_[shape_.size() - 2] > 1 &&
        shape_.back() > 1) {
      Add("transposed", TransposeKind(alone_, name_));
    }
    // The first and the second half of an axis that has one.
    for (size_t axis = 0; axis < shape_.size(); ++axis) {
      if (shape_[axis] > 1) SwapHalves(static_cast<int64_t>(axis));
    }
    SwapBlocks();
    SwapWithOthers();
    return std::move(mutants_);
  }

 private:
  // The changed tensors replace those of the right model.
  void Add(const std::string& what, OracleModel changed) {
    Mutant mutant = {fmt::format("{} {}", name_, what), model_};
    for (auto& [name, tensor] : changed.tensors) {
      mutant.model.tensors[name] = std::move(tensor);
    }
    mutants_.push_back(std::move(mutant));
  }

  void Swap(const std::string& what, int64_t axis, int64_t first,
            int64_t second, int64_t length) {
    Add(what, SwapSlices(alone_, name_, axis, first, second, length));
  }

  void SwapHalves(int64_t axis) {
    const int64_t half = shape_[static_cast<size_t>(axis)] / 2;
    Swap(fmt::format("with the halves of axis {} swapped", axis), axis, 0, half,
         half);
  }

  // Blocks that a reader could take for each other.
  void SwapBlocks() {
    const OracleConfig& config = model_.config;
    const int64_t key_rows = config.linear_key_heads * config.linear_key_dim;
    if (kind_ == "self_attn.q_proj.weight") {
      Swap("with query and gate of head 0 swapped", 0, 0, config.head_dim,
           config.head_dim);
    } else if (kind_ == "linear_attn.in_proj_qkv.weight" ||
               kind_ == "linear_attn.conv1d.weight") {
      Swap("with q and k swapped", 0, 0, key_rows, key_rows);
    } else if (kind_ == "mlp.experts.gate_up_proj") {
      Swap("with gate and up swapped", 1, 0, shape_[1] / 2, shape_[1] / 2);
    }
    if (kind_.starts_with("mlp.experts.") && shape_[0] > 1) {
      Swap("with experts 0 and 1 swapped", 0, 0, 1, 1);
    }
  }

  // Tensors of one shape that a reader could take for each other.
  void SwapWithOthers() {
    static const std::map<std::string, std::string> others = {
        {"input_layernorm.weight", "post_attention_layernorm.weight"},
        {"self_attn.k_proj.weight", "self_attn.v_proj.weight"},
        {"self_attn.q_norm.weight", "self_attn.k_norm.weight"},
        {"linear_attn.in_proj_b.weight", "linear_attn.in_proj_a.weight"},
        {"linear_attn.A_log", "linear_attn.dt_bias"},
        {"mlp.gate_proj.weight", "mlp.up_proj.weight"},
        {"mlp.shared_expert.gate_proj.weight",
         "mlp.shared_expert.up_proj.weight"},
    };
    const auto found = others.find(kind_);
    if (found == others.end()) return;
    const std::string other =
        name_.substr(0, name_.size() - kind_.size()) + found->second;
    OracleModel both = alone_;
    both.tensors[other] = model_.tensors.at(other);
    Add("swapped with " + found->second, SwapKinds(both, name_, other));
  }

  const OracleModel& model_;
  const std::string& name_;
  const std::string kind_;
  const std::vector<int64_t> shape_;
  const OracleModel alone_;  // with this tensor only: a name is a kind too
  std::vector<Mutant> mutants_;
};

class Mutation : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    folder_ = CheckpointFolder(GetParam());
    model_ = LoadOracleModel(folder_.string());
    ASSERT_TRUE(std::filesystem::exists(GoldenPath(GetParam())))
        << "make the goldens";
    golden_ = ReadGolden(GoldenPath(GetParam()));
    fed_.assign(golden_.prompt.begin(), golden_.prompt.begin() + kPositions);
    const auto split = fed_.begin() + kPrompt;
    engine_ = RunEngine(folder_, {.context = 64, .page_tokens = 16},
                        {fed_.begin(), split}, {split, fed_.end()})
                  .trace;
  }

  // The reference chooses its experts, as a golden's author does.
  Discrepancy FromReference(const OracleModel& model) const {
    return WorstDiscrepancy(engine_, TraceOfOracle(model, fed_, nullptr),
                            golden_);
  }

  std::filesystem::path folder_;
  OracleModel model_;
  Golden golden_;
  Trace engine_;
  std::vector<int32_t> fed_;
};

TEST_P(Mutation, E3_WrongReferencesAreToldFromTheEngine) {
  const Discrepancy right = FromReference(model_);
  EXPECT_LE(right.factor, 1) << right.where;

  // Of each kind the last layer's, whose effect has the least way to grow.
  std::map<std::string, std::string> last_of_kind;
  for (const std::string& name :
       DeclaredTensors(OpenManifest(folder_)->config())) {
    ASSERT_TRUE(model_.tensors.contains(name)) << name;
    std::string& last = last_of_kind[KindOfTensor(name)];
    if (last.empty() || LayerNumber(name) > LayerNumber(last)) last = name;
  }
  int count = 0;
  double least = std::numeric_limits<double>::infinity();
  std::string least_seen;
  for (const auto& [kind, name] : last_of_kind) {
    const std::vector<Mutant> mutants = Mutator(model_, name).Run();
    EXPECT_GE(mutants.size(), 2u) << kind << " is hardly mutated";
    for (const Mutant& mutant : mutants) {
      ++count;
      const Discrepancy found = FromReference(mutant.model);
      EXPECT_GT(found.factor, 1) << mutant.text << " passes as right";
      if (found.factor < least) {
        least = found.factor;
        least_seen = mutant.text + ", seen in " + found.where;
      }
    }
  }
  std::printf(
      "%-22s %d mutants of %zu kinds; right: %.2g of the bound; least "
      "seen: %.3g times (%s)\n",
      GetParam().c_str(), count, last_of_kind.size(), right.factor, least,
      least_seen.c_str());
}

// Together the checkpoints have every role, so that none goes unmutated.
TEST(MutationCoverage, E3_CheckpointsHaveEveryRole) {
  std::set<model::Role> roles;
  bool has_experts = false;
  for (const std::string& name : TinyCheckpointNames()) {
    const auto manifest = OpenManifest(CheckpointFolder(name));
    const model::Declaration declaration =
        model::DeclareQwen35(manifest->config(), /*prefix=*/"");
    for (const auto& weight : declaration.weights) roles.insert(weight.role);
    has_experts = has_experts || !declaration.experts.empty();
  }
  for (int i = 0; i < model::kNumRoles; ++i) {
    const auto role = static_cast<model::Role>(i);
    EXPECT_TRUE(roles.contains(role)) << Name(role) << " is never mutated";
  }
  EXPECT_TRUE(has_experts);
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, Mutation,
                         ::testing::ValuesIn(TinyCheckpointNames()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace signet::testing
