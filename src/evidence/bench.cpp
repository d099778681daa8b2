#include "evidence/bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include "base/check.h"
#include "engine/plan_impl.h"
#include "engine/threads.h"
#include "evidence/bench_look.h"
#include "evidence/bench_memory.h"
#include "evidence/bench_run.h"
#include "evidence/bench_serve.h"
#include "evidence/ranks.h"
#include "evidence/side_plan.h"
#include "signet/engine.h"
#include "signet/session.h"

namespace signet::evidence {
namespace {

// Under this share of what uniform routes would meet, rows are too alike for a
// time to mean anything.
constexpr double kLeastShareMet = 0.8;

class Bencher {
 public:
  explicit Bencher(const BenchRequest& request)
      : request_(request), options_(request.options) {}

  Result<BenchReport> Run() {
    SIGNET_RETURN_IF_ERROR(ChooseShapes());
    SIGNET_RETURN_IF_ERROR(MakePlans());
    SIGNET_RETURN_IF_ERROR(MeasureMachine());
    SIGNET_RETURN_IF_ERROR(Serve());
    SIGNET_RETURN_IF_ERROR(Look());
    for (DecodeResult& decode : report_.decode) {
      decode.costs = DecodeCosts(sizes_, decode.batch, decode.attended,
                                 decode.experts ? decode.experts->met : 0);
    }
    return std::move(report_);
  }

 private:
  void Phase(std::string_view what) const {
    if (request_.on_phase) request_.on_phase(what);
  }

  void Figure(std::string_view what) const {
    if (request_.on_figure) request_.on_figure(what);
  }

  Result<void> ChooseShapes() {
    SIGNET_CHECK(!request_.prompts.empty() && !request_.batches.empty() &&
                 request_.tokens >= 2 && request_.repeat >= kFewestRuns);
    const int64_t longest = std::max(
        *std::max_element(request_.prompts.begin(), request_.prompts.end()),
        kDecodePromptIds + request_.tokens);
    options_.mesh = "single";
    options_.context = request_.context.value_or(longest);
    if (options_.context < longest) {
      return Reject(RejectionCode::kPlanOptionInvalid, "--ctx",
                    "the context does not hold what is measured",
                    fmt::format("{}", options_.context),
                    fmt::format("at least {}", longest));
    }
    std::vector<int64_t> buckets = request_.batches;
    std::sort(buckets.begin(), buckets.end());
    options_.batch = std::max(options_.batch, buckets.back());
    buckets.push_back(options_.batch);
    buckets.erase(std::unique(buckets.begin(), buckets.end()), buckets.end());
    options_.decode_buckets = std::move(buckets);
    options_.prefill_chunks.clear();
    return {};
  }

  // The product's plan, and the same for the programs that are looked at.
  Result<void> MakePlans() {
    SIGNET_ASSIGN_OR_RETURN(const Source source,
                            Source::Open(request_.model, request_.paths));
    const auto start = std::chrono::steady_clock::now();
    SIGNET_ASSIGN_OR_RETURN(plan_, Plan::Make(source, options_));
    const std::chrono::duration<double> taken =
        std::chrono::steady_clock::now() - start;
    report_.planning = {taken.count(), plan_->sealing()};
    SIGNET_RETURN_IF_ERROR(plan_->Admission());
    SIGNET_ASSIGN_OR_RETURN(manifest_,
                            OpenManifest(request_.model, request_.paths));
    SIGNET_ASSIGN_OR_RETURN(
        const std::vector<SideSpec> sides,
        ChooseSides({{.mesh = options_.mesh, .devices = {}}},
                    options_.devices));
    SIGNET_ASSIGN_OR_RETURN(const std::vector<plan::PlanOptions> options,
                            OptionsOfSides(sides, options_));
    SIGNET_ASSIGN_OR_RETURN(
        side_, MakeSidePlan(manifest_, sides.front(), options.front(), {}));
    SIGNET_CHECK(side_.plan->contract_id().Hex() == plan_->contract_id());

    sizes_ = SizesOf(*manifest_, side_.plan->options().kv_dtype);
    report_.model = request_.model;
    report_.folder = source.folder();
    report_.device = sides.front().devices.front();
    report_.contract = plan_->contract_id();
    report_.threads = WorkingThreads(request_.threads);
    report_.context = options_.context;
    report_.batch = options_.batch;
    report_.layers = static_cast<int64_t>(manifest_->config().layers.size());
    report_.num_experts = sizes_.num_experts;
    report_.repeat = request_.repeat;
    return {};
  }

  Result<void> MeasureMachine() {
    Phase("the ceilings of the device");
    SIGNET_ASSIGN_OR_RETURN(
        const std::vector<std::unique_ptr<backend::Device>> devices,
        MakeDevices(side_.plan->mesh(), /*threads=*/1));
    SIGNET_ASSIGN_OR_RETURN(
        report_.ceilings,
        MeasureCeilings(*devices.front(), manifest_->checkpoint(),
                        report_.threads));
    return {};
  }

  // Everything that is timed as a caller sees it. The model is gone afterwards,
  // so that the device has room for it once more.
  Result<void> Serve() {
    SIGNET_ASSIGN_OR_RETURN(
        Engine engine, Engine::Make({.threads = report_.threads,
                                     .verify_files = request_.verify_files}));
    Phase("the load");
    const bool peak_is_ours = RestartPeakMemory();
    const auto start = std::chrono::steady_clock::now();
    SIGNET_ASSIGN_OR_RETURN(
        Model model, engine.Load(*plan_, [&](const LoadProgress& progress) {
          report_.load.bytes = progress.total_bytes;
        }));
    const std::chrono::duration<double> taken =
        std::chrono::steady_clock::now() - start;
    report_.load.seconds = taken.count();
    Figure(fmt::format("load: {:.2f} s", report_.load.seconds));
    SIGNET_RETURN_IF_ERROR(Generate(model));
    if (peak_is_ours) report_.peak_bytes = PeakMemory();
    return model.Unload();
  }

  Result<void> Generate(const Model& model) {
    SIGNET_ASSIGN_OR_RETURN(Session session,
                            Session::Make(model, options_.batch));
    for (const int64_t length : request_.prompts) {
      Phase(fmt::format("prefill, {} tokens", length));
      SIGNET_ASSIGN_OR_RETURN(
          const std::vector<double> seconds,
          MeasurePrefill(session, prompts(), length, request_.repeat));
      report_.prefill.push_back({.tokens = length,
                                 .seconds = SpreadOf(seconds),
                                 .tokens_per_second = RatesOf(length, seconds),
                                 .costs = PrefillCosts(sizes_, length)});
      Figure(fmt::format("prefill, {} tokens: {:.1f} tok/s", length,
                         report_.prefill.back().tokens_per_second.median));
    }
    for (const int64_t batch : request_.batches) {
      Phase(fmt::format("decode, batch {}", batch));
      SIGNET_ASSIGN_OR_RETURN(
          DecodeRuns runs,
          MeasureDecode(session, prompts(), batch, kDecodePromptIds,
                        request_.tokens, request_.repeat));
      DecodeResult& result = report_.decode.emplace_back();
      result.batch = batch;
      result.steps = runs.steps;
      result.tokens_per_second = RatesOf(batch * runs.steps, runs.windows);
      Figure(fmt::format("decode, batch {}: {:.1f} tok/s", batch,
                         result.tokens_per_second.median));
      std::vector<double> steps;
      for (const double window : runs.windows) {
        steps.push_back(window / static_cast<double>(runs.steps));
      }
      result.step_seconds = SpreadOf(std::move(steps));
      // The first step attends to the prompt and its own token, the last to
      // all but the last token.
      result.attended = static_cast<double>(kDecodePromptIds) +
                        static_cast<double>(request_.tokens) / 2;
      decoded_.push_back(std::move(runs.last));
    }
    return {};
  }

  static Spread RatesOf(int64_t count, const std::vector<double>& seconds) {
    std::vector<double> rates;
    for (const double one : seconds) {
      rates.push_back(static_cast<double>(count) / one);
    }
    return SpreadOf(std::move(rates));
  }

  // The model once more: tapped first, then as it serves.
  Result<void> Look() {
    const bool routes = sizes_.num_experts > 0;
    if (!routes && !request_.profile) return {};
    Phase("the load, to look at every step");
    SIGNET_ASSIGN_OR_RETURN(const BenchModel model,
                            LoadBenchModel(&side_, report_.threads));
    std::vector<std::vector<int32_t>> chunks;
    if (request_.profile) {
      // One more than counts.
      for (int i = 0; i <= request_.repeat; ++i) {
        chunks.push_back(prompts().Next(request_.prompts.front()));
      }
    }
    std::optional<Profile> unfused;
    double chunk_experts = 0;
    if (routes || model.fuses()) {
      SIGNET_ASSIGN_OR_RETURN(const std::unique_ptr<BenchRun> run,
                              BenchRun::Start(model, BenchBinding::kTapped));
      if (routes) SIGNET_RETURN_IF_ERROR(CountExperts(*run));
      if (request_.profile && routes) {
        SIGNET_ASSIGN_OR_RETURN(chunk_experts,
                                LookAtPrefill(*run, chunks.front()));
      }
      if (request_.profile && model.fuses()) {
        Phase("the steps of a decode, unfused");
        SIGNET_ASSIGN_OR_RETURN(
            unfused, ProfileDecode(*run, decoded_.front(), DecodeExperts()));
      }
    }
    if (!request_.profile) return {};
    SIGNET_ASSIGN_OR_RETURN(const std::unique_ptr<BenchRun> run,
                            BenchRun::Start(model, BenchBinding::kServed));
    Phase("the launches of a decode");
    SIGNET_ASSIGN_OR_RETURN(
        Profile decode, ProfileDecode(*run, decoded_.front(), DecodeExperts()));
    report_.profiles.push_back(std::move(decode));
    if (unfused) report_.profiles.push_back(*std::move(unfused));
    Phase("the launches of a prefill chunk");
    SIGNET_ASSIGN_OR_RETURN(Profile prefill,
                            ProfilePrefill(*run, chunks, chunk_experts));
    report_.profiles.push_back(std::move(prefill));
    return {};
  }

  Result<void> CountExperts(BenchRun& run) {
    for (size_t i = 0; i < report_.decode.size(); ++i) {
      DecodeResult& decode = report_.decode[i];
      Phase(fmt::format("the routes of batch {}", decode.batch));
      SIGNET_ASSIGN_OR_RETURN(const DecodeLook look,
                              LookAtDecode(run, decoded_[i]));
      decode.experts = RoutedExperts{
          .steps = look.steps,
          .met = look.experts,
          .uniform = UniformExperts(sizes_.num_experts, sizes_.top_k,
                                    static_cast<double>(decode.batch)),
          .same_tokens = look.same_tokens};
    }
    return {};
  }

  // Of the first batch.
  double DecodeExperts() const {
    const std::optional<RoutedExperts>& experts =
        report_.decode.front().experts;
    return experts ? experts->met : 0;
  }

  RandomPrompts& prompts() {
    if (!prompts_) prompts_.emplace(side_.plan->config().vocab);
    return *prompts_;
  }

  const BenchRequest& request_;
  PlanOptions options_;
  std::optional<Plan> plan_;
  std::shared_ptr<const model::Manifest> manifest_;
  SidePlan side_;
  ModelSizes sizes_;
  std::optional<RandomPrompts> prompts_;
  std::vector<std::vector<Sequence>> decoded_;  // as report_.decode
  BenchReport report_;
};

}  // namespace

std::string DecodeResult::VoidReason() const {
  if (!experts) return {};
  if (!experts->same_tokens) {
    return "the steps looked at drew other tokens";
  }
  if (experts->met < kLeastShareMet * experts->uniform) {
    return "routes too alike";
  }
  return {};
}

Result<BenchReport> Bench(const BenchRequest& request) {
  return Bencher(request).Run();
}

}  // namespace signet::evidence
