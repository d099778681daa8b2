#include "evidence/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "engine/plan_impl.h"
#include "engine/threads.h"
#include "evidence/lockstep.h"
#include "evidence/mesh_side.h"
#include "evidence/side_plan.h"
#include "text/tokenizer.h"

namespace signet::evidence {
namespace {

constexpr uint64_t kMaxTokenizerBytes = uint64_t{256} << 20;
constexpr int64_t kFixedIds = 40;

Result<std::string> TokenizerJson(const model::Checkpoint& checkpoint) {
  if (!checkpoint.tokenizer_file()) return std::string();
  SIGNET_RETURN_IF_ERROR(checkpoint.tokenizer_file()->CheckUnchanged());
  return checkpoint.tokenizer_file()->ReadAll(kMaxTokenizerBytes);
}

// Of the routed experts, the same in every layer and on every rank.
plan::Parallelism ParallelismOf(const plan::ModelPlan& plan) {
  for (const model::ExpertGroup& group : plan.manifest().expert_groups()) {
    const plan::ExpertView* view = plan.experts().View(group.layer, Rank(0));
    if (view != nullptr) return (*view)->parallelism;
  }
  return plan::Parallelism::kSingle;
}

// Everything of one side that is decided before it runs.
struct PlannedSide {
  SidePlan production;
  SidePlan tapped;  // logits of every row (G5)
};

class Verifier {
 public:
  explicit Verifier(const VerifyRequest& request) : request_(request) {
    report_.model = request.model;
    report_.fault = request.fault;
    report_.positions = request.positions;
    report_.options = request.options;
  }

  Result<VerifyReport> Run() {
    SIGNET_RETURN_IF_ERROR(CheckRequest());
    SIGNET_RETURN_IF_ERROR(Open());
    SIGNET_RETURN_IF_ERROR(ReadPrompt());
    SIGNET_ASSIGN_OR_RETURN(
        specs_, ChooseSides(request_.sides, request_.options.devices));
    SIGNET_RETURN_IF_ERROR(PlanSides());
    SIGNET_RETURN_IF_ERROR(FindAllBounds());
    SIGNET_RETURN_IF_ERROR(RunPass(Taps::kOff));
    SIGNET_RETURN_IF_ERROR(RunPass(Taps::kOn));
    Conclude();
    return std::move(report_);
  }

 private:
  Result<void> CheckRequest() const {
    if (request_.fault && request_.sides.size() < 2) {
      return Reject(RejectionCode::kPlanOptionInvalid, "--inject",
                    "a fault acts on every side but the first, and there is "
                    "no other",
                    std::string(Name(*request_.fault)), "two or more --mesh");
    }
    return {};
  }

  Result<void> Open() {
    SIGNET_ASSIGN_OR_RETURN(manifest_,
                            OpenManifest(request_.model, request_.paths));
    const model::Checkpoint& checkpoint = manifest_->checkpoint();
    report_.folder = checkpoint.folder();
    SIGNET_ASSIGN_OR_RETURN(report_.digests, DigestsOf(checkpoint));
    return {};
  }

  Result<void> ReadPrompt() {
    const model::Checkpoint& checkpoint = manifest_->checkpoint();
    const int64_t vocab = manifest_->config().vocab;
    std::vector<int32_t>& ids = report_.prompt;
    if (request_.prompt &&
        std::holds_alternative<std::vector<int32_t>>(*request_.prompt)) {
      ids = std::get<std::vector<int32_t>>(*request_.prompt);
    } else if (request_.prompt || checkpoint.tokenizer_file()) {
      if (!checkpoint.tokenizer_file()) {
        return Reject(RejectionCode::kRequestInvalid, "-p",
                      "the checkpoint has no tokenizer.json; give token ids");
      }
      report_.prompt_text = request_.prompt
                                ? std::get<std::string>(*request_.prompt)
                                : std::string(kDefaultPrompt);
      SIGNET_ASSIGN_OR_RETURN(const std::string json,
                              TokenizerJson(checkpoint));
      SIGNET_ASSIGN_OR_RETURN(
          const std::shared_ptr<const text::Tokenizer> tokenizer,
          text::Tokenizer::Parse(json, checkpoint.tokenizer_config_json()));
      SIGNET_ASSIGN_OR_RETURN(ids, tokenizer->Encode(*report_.prompt_text));
    } else {
      for (int64_t i = 0; i < kFixedIds; ++i) {
        const uint64_t spread = static_cast<uint64_t>(i) * 2654435761u >> 8;
        ids.push_back(
            static_cast<int32_t>(spread % static_cast<uint64_t>(vocab)));
      }
    }
    // The fixed prompt is as long as there is room for.
    if (!request_.prompt &&
        static_cast<int64_t>(ids.size()) > request_.positions) {
      ids.resize(static_cast<size_t>(request_.positions));
    }
    return CheckPrompt(ids, vocab);
  }

  Result<void> CheckPrompt(const std::vector<int32_t>& ids,
                           int64_t vocab) const {
    if (ids.empty()) {
      return Reject(RejectionCode::kRequestInvalid, "prompt",
                    "the prompt has no token");
    }
    for (const int32_t id : ids) {
      if (id >= 0 && id < vocab) continue;
      return Reject(RejectionCode::kRequestInvalid, "prompt",
                    "a prompt id is outside the vocabulary",
                    fmt::format("{}", id), fmt::format("0 ... {}", vocab - 1));
    }
    const auto length = static_cast<int64_t>(ids.size());
    if (length > request_.positions) {
      return Reject(RejectionCode::kPromptTooLong, "-n",
                    "the prompt alone has more positions",
                    fmt::format("{}", request_.positions),
                    fmt::format("at least {}", length));
    }
    if (request_.positions > request_.options.context) {
      return Reject(
          RejectionCode::kPromptTooLong, "-n",
          "the context does not hold this many positions",
          fmt::format("{}", request_.positions),
          fmt::format("at most {} (--ctx)", request_.options.context));
    }
    return {};
  }

  Result<void> PlanSides() {
    SIGNET_ASSIGN_OR_RETURN(std::vector<plan::PlanOptions> options,
                            OptionsOfSides(specs_, request_.options));
    sides_.resize(specs_.size());
    for (const bool all_logits : {false, true}) {
      RejectionList rejections;
      for (size_t i = 0; i < specs_.size(); ++i) {
        options[i].all_logits = all_logits;
        Result<SidePlan> side =
            MakeSidePlan(manifest_, specs_[i], options[i], FaultOf(i));
        if (!side) {
          rejections.Absorb(std::move(side).error());
          continue;
        }
        (all_logits ? sides_[i].tapped : sides_[i].production) =
            *std::move(side);
      }
      if (!rejections.empty()) return rejections.Take();
    }
    for (size_t i = 0; i < specs_.size(); ++i) {
      const plan::ModelPlan& plan = *sides_[i].production.plan;
      SideReport& report = report_.sides.emplace_back();
      report.request = request_.sides[i];
      for (int r = 0; r < plan.mesh().num_ranks(); ++r) {
        report.devices.push_back(plan.mesh().device(Rank(r)));
      }
      report.emulated = plan.mesh().emulated();
      report.epoch = plan.mesh().epoch();
      report.contract = plan.contract_id();
    }
    return {};
  }

  // Sums run in one order on every mesh but over another number of tensor
  // parallel ranks.
  Result<void> FindAllBounds() {
    RejectionList rejections;
    const auto tp_of = [](const SideSpec& spec) {
      for (const topology::AxisSize& axis : spec.mesh.axes()) {
        if (axis.axis == topology::Axis::kTp) return axis.size;
      }
      return int64_t{1};
    };
    for (size_t i = 1; i < specs_.size(); ++i) {
      const bool alike =
          tp_of(specs_[i]) == tp_of(specs_[0]) &&
          specs_[i].devices[0].backend == specs_[0].devices[0].backend;
      if (!alike) {
        const size_t wider = tp_of(specs_[i]) > tp_of(specs_[0]) ? i : 0;
        const plan::ModelPlan& plan = *sides_[wider].production.plan;
        const plan::Parallelism experts = ParallelismOf(plan);
        const std::string_view format =
            Name(manifest_->weights()[WeightId(0)].dtype);
        const std::string& first = specs_[0].devices[0].backend;
        const std::string& other = specs_[i].devices[0].backend;
        report_.sides[i].bounds = FindBounds(first, other, experts, format);
        if (!report_.sides[i].bounds) {
          rejections.Add(
              RejectionCode::kMeshUnsupported, "--mesh",
              "no bound is committed for sides whose sums run in another "
              "order",
              fmt::format("{} on {} and {} on {}, experts {}, {}",
                          specs_[0].mesh.ToString(), first,
                          specs_[i].mesh.ToString(), other, Name(experts),
                          format));
        }
      }
    }
    if (!rejections.empty()) return rejections.Take();
    return {};
  }

  std::optional<Fault> FaultOf(size_t side) const {
    return side == 0 ? std::nullopt : request_.fault;
  }

  Result<std::unique_ptr<MeshSide>> Start(size_t side, Taps taps) {
    // The first to be loaded holds every weight that any side does.
    const bool is_first = side == 0 && taps == Taps::kOff;
    SIGNET_ASSIGN_OR_RETURN(
        std::unique_ptr<MeshSide> started,
        MeshSide::Start(
            taps == Taps::kOn ? &sides_[side].tapped : &sides_[side].production,
            taps, WorkingThreads(request_.threads), FaultOf(side),
            request_.verify_files && is_first ? store::Scan::kEverything
                                              : store::Scan::kSensitive));
    if (is_first) report_.content = started->weights().content_digest();
    return started;
  }

  // The first side beside each other one in turn, so that two are in memory.
  Result<void> RunPass(Taps taps) {
    std::vector<SideLog>& logs =
        taps == Taps::kOn ? tapped_logs_ : production_logs_;
    logs.resize(specs_.size());
    for (size_t i = std::min<size_t>(1, specs_.size() - 1); i < specs_.size();
         ++i) {
      SIGNET_ASSIGN_OR_RETURN(const std::unique_ptr<MeshSide> first,
                              Start(0, taps));
      std::unique_ptr<MeshSide> other;
      if (i > 0) {
        SIGNET_ASSIGN_OR_RETURN(other, Start(i, taps));
      }
      SIGNET_RETURN_IF_ERROR(RunPair(*first, other.get(), i, taps, logs));
    }
    return {};
  }

  Result<void> RunPair(Side& first, Side* other, size_t index, Taps taps,
                       std::vector<SideLog>& logs) {
    Feed feed{.prompt = report_.prompt,
              .other_prompt = report_.prompt,
              .positions = request_.positions};
    if (FaultOf(index) == Fault::kWrongToken) {
      feed.other_prompt =
          WrongToken(feed.other_prompt, manifest_->config().vocab);
    }
    SideReport& report = report_.sides[index];
    std::optional<Comparison>& comparison =
        taps == Taps::kOn ? report.tapped : report.production;
    if (other != nullptr) comparison.emplace(report.bounds);
    // Each side's own passes are compared bit for bit, so bounds need asking
    // of one pass only: the one that sees where routes part.
    const bool compares = taps == Taps::kOn || !report.bounds;
    SideLog first_log;
    SIGNET_ASSIGN_OR_RETURN(
        report_.drawn,
        RunLockstep(first, other, feed,
                    [&](const CallRecord& record, const CallRecord* others) {
                      first_log.Add(record);
                      if (others == nullptr) return;
                      logs[index].Add(*others);
                      if (compares) comparison->Add(record, *others);
                    }));
    if (logs[0].calls() == 0) {
      logs[0] = std::move(first_log);
    } else if (first_log.PositionDigests() != logs[0].PositionDigests()) {
      report_.sides[0].faults.push_back(
          {"run", kNoLayer, 0, "a second run of the side gave other bits"});
    }
    return {};
  }

  void Conclude() {
    for (size_t i = 0; i < report_.sides.size(); ++i) {
      SideReport& report = report_.sides[i];
      const SideLog& production = production_logs_[i];
      const SideLog& tapped = tapped_logs_[i];
      const auto add = [&](const std::vector<SelfFault>& faults) {
        report.faults.insert(report.faults.end(), faults.begin(), faults.end());
      };
      report.num_faults = static_cast<int64_t>(report.faults.size()) +
                          production.num_faults() + tapped.num_faults();
      add(production.faults());
      add(tapped.faults());
      const std::vector<SelfFault> between = production.CompareWithTaps(tapped);
      report.num_faults += static_cast<int64_t>(between.size());
      add(between);
      // The last call is of the final state and runs nothing.
      report.collectives_a_call = tapped.collectives() / (tapped.calls() - 1);
      report.rank_slots = tapped.rank_slots();
      report.digests = tapped.PositionDigests();
    }
  }

  const VerifyRequest& request_;
  VerifyReport report_;
  std::shared_ptr<const model::Manifest> manifest_;
  std::vector<SideSpec> specs_;
  std::vector<PlannedSide> sides_;
  std::vector<SideLog> production_logs_;
  std::vector<SideLog> tapped_logs_;
};

}  // namespace

const std::string_view kDefaultPrompt =
    "Alice was beginning to get very tired of sitting by her sister on the "
    "bank, and of having nothing to do: once or twice she had peeped into the "
    "book her sister was reading, but it had no pictures or conversations in "
    "it";

Result<ModelDigests> DigestsOf(const model::Checkpoint& checkpoint) {
  SIGNET_ASSIGN_OR_RETURN(const std::string tokenizer,
                          TokenizerJson(checkpoint));
  return ModelDigests{.headers = checkpoint.digest(),
                      .tokenizer = Digest::Of(tokenizer)};
}

bool SideReport::holds() const {
  return num_faults == 0 && (!production || production->holds()) &&
         (!tapped || tapped->holds());
}

std::optional<Place> SideReport::different() const {
  std::optional<Place> first;
  for (const std::optional<Comparison>* comparison : {&production, &tapped}) {
    if (!*comparison || !(*comparison)->different()) continue;
    const Place& place = *(*comparison)->different();
    if (!first || place < *first) first = place;
  }
  return first;
}

bool VerifyReport::holds() const {
  return std::all_of(sides.begin(), sides.end(),
                     [](const SideReport& side) { return side.holds(); });
}

Result<VerifyReport> Verify(const VerifyRequest& request) {
  return Verifier(request).Run();
}

}  // namespace signet::evidence
