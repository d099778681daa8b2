#include "signet/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <utility>

#include "base/result.h"
#include "engine/bind_ranks.h"
#include "engine/boundary.h"
#include "engine/engine_impl.h"
#include "engine/sequence_run.h"
#include "engine/world_facts.h"
#include "exec/mesh_executor.h"
#include "exec/sequence_state.h"

namespace signet {
namespace {

using Clock = std::chrono::steady_clock;

Result<void> CheckSampling(const Request& request, const std::string& where) {
  const auto refuse = [&](const char* what, std::string got, const char* want) {
    return Reject(RejectionCode::kRequestInvalid, where, what, std::move(got),
                  want);
  };
  const Sampling& sampling = request.sampling;
  if (!std::isfinite(sampling.temperature) || sampling.temperature < 0) {
    return refuse("the temperature is out of range",
                  fmt::format("{}", sampling.temperature), "at least 0");
  }
  if (sampling.top_k < 0) {
    return refuse("top-k is out of range", fmt::format("{}", sampling.top_k),
                  "at least 0");
  }
  if (!(sampling.top_p > 0 && sampling.top_p <= 1)) {
    return refuse("top-p is out of range", fmt::format("{}", sampling.top_p),
                  "over 0, at most 1");
  }
  if (request.max_tokens < 1) {
    return refuse("the number of tokens to generate is out of range",
                  fmt::format("{}", request.max_tokens), "at least 1");
  }
  return {};
}

}  // namespace

std::string_view Name(Finish finish) {
  switch (finish) {
    case Finish::kStop:
      return "stop";
    case Finish::kLength:
      return "length";
    case Finish::kAborted:
      return "aborted";
    case Finish::kError:
      return "error";
  }
  return "";
}

struct Session::Impl {
  // Counts this session in on the model, and out.
  struct Guest {
    std::shared_ptr<Model::Impl> model;
    /// The caller holds the model's mutex.
    explicit Guest(std::shared_ptr<Model::Impl> m) : model(std::move(m)) {
      ++model->sessions;
    }
    Guest(const Guest&) = delete;
    Guest& operator=(const Guest&) = delete;
    ~Guest() {
      const std::lock_guard lock(model->mutex);
      --model->sessions;
    }
  };

  // Members are destroyed in reverse: the ranks with their weights, then the
  // place on the model.
  std::unique_ptr<Guest> guest;
  std::unique_ptr<exec::MeshExecutor> mesh;
  std::optional<exec::SequenceState> state;
  std::vector<SequenceSlot> free_slots;
  bool poisoned = false;
  std::atomic<bool> abort{false};
  static_assert(std::atomic<bool>::is_always_lock_free);
  // Reused every step, so that decoding allocates nothing.
  std::vector<exec::RowInput> rows;
  std::vector<backend::SamplingRow> sampling;

  const Model::Impl& model() const { return *guest->model; }
  Result<SequenceRun> Prepare(const Request& request, size_t index) const;
  Result<std::optional<Finish>> Prefill(SequenceRun& run, Sink& sink,
                                        Clock::time_point start);
  Result<void> Decode(std::vector<SequenceRun*>& active, Sink& sink,
                      Clock::time_point start);
  Result<std::vector<SequenceRun>> Begin(std::span<const Request> requests);
  void RunToEnds(std::vector<SequenceRun>& runs,
                 std::vector<SequenceRun*>& active, Sink& sink);
  void Finished(SequenceRun& run, Finish finish, const Error* error,
                Sink& sink);
};

namespace {

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

Result<SequenceRun> Session::Impl::Prepare(const Request& request,
                                           size_t index) const {
  const std::string where =
      request.name.empty() ? fmt::format("request {}", index) : request.name;
  SIGNET_RETURN_IF_ERROR(CheckSampling(request, where));
  const Model::Impl& made = model();
  const auto vocab = static_cast<int32_t>(made.plan->plan->config().vocab);
  const int64_t context = made.plan->plan->options().context;
  std::vector<int32_t> prompt;
  // Ids without a token are masked when text is wanted.
  int32_t id_bound = vocab;
  if (const auto* ids = std::get_if<std::vector<int32_t>>(&request.prompt)) {
    prompt = *ids;
  } else {
    const auto* const chat = std::get_if<Chat>(&request.prompt);
    SIGNET_ASSIGN_OR_RETURN(
        prompt, chat != nullptr
                    ? made.EncodeChat(*chat)
                    : made.Encode(std::get<std::string>(request.prompt)));
    id_bound = std::min(vocab, made.tokenizer->id_bound());
  }
  if (prompt.empty()) {
    return Reject(RejectionCode::kRequestInvalid, where,
                  "the prompt has no token");
  }
  if (static_cast<int64_t>(prompt.size()) > context) {
    return Reject(RejectionCode::kPromptTooLong, where,
                  "the prompt is longer than the context",
                  fmt::format("{} tokens", prompt.size()),
                  fmt::format("at most {} (--ctx)", context));
  }
  for (const int32_t id : prompt) {
    if (id >= 0 && id < vocab) continue;
    return Reject(RejectionCode::kRequestInvalid, where,
                  "a prompt id is outside the vocabulary",
                  fmt::format("{}", id), fmt::format("0 ... {}", vocab - 1));
  }
  return SequenceRun({.index = index,
                      .prompt = std::move(prompt),
                      .request = &request,
                      .tokenizer = made.tokenizer.get(),
                      .stop_ids = made.stop_ids,
                      .context = context,
                      .id_bound = id_bound});
}

// The whole prompt in chunks that follow from its length alone, and the first
// token. Empty when Abort() came between two chunks.
Result<std::optional<Finish>> Session::Impl::Prefill(SequenceRun& run,
                                                     Sink& sink,
                                                     Clock::time_point start) {
  const std::span<const int32_t> prompt = run.prompt();
  const auto length = static_cast<int64_t>(prompt.size());
  int64_t done = 0;
  while (true) {
    if (abort.load(std::memory_order_relaxed)) return Finish::kAborted;
    const exec::BoundProgram& program =
        mesh->programs(mesh->first_here()).Prefill(length - done);
    const int64_t live = std::min(program.shape().rows, length - done);
    state->Extend(*run.slot, live);
    rows.clear();
    for (int64_t i = 0; i < live; ++i) {
      rows.push_back({.id = prompt[static_cast<size_t>(done + i)],
                      .slot = run.slot->value(),
                      .position = static_cast<int32_t>(done + i)});
    }
    const bool every_row = program.shape().logits == plan::LogitsOf::kEveryRow;
    sampling.clear();
    for (int64_t i = every_row ? 0 : live - 1; i < live; ++i) {
      sampling.push_back(run.SamplingAt(done + i + 1));
    }
    SIGNET_RETURN_IF_ERROR(mesh->Prefill(length - done, rows, sampling));
    done += live;
    if (done < length) {
      sink.OnPrompt({run.index(), done, length});
      continue;
    }
    const int32_t id = program.io().sampled[sampling.size() - 1];
    const std::optional<Finish> finish = run.Take(id, length, sink);
    run.MarkToken(SecondsSince(start));
    return finish;
  }
}

// One step of every active sequence.
Result<void> Session::Impl::Decode(std::vector<SequenceRun*>& active,
                                   Sink& sink, Clock::time_point start) {
  std::sort(active.begin(), active.end(),
            [](const SequenceRun* a, const SequenceRun* b) {
              return *a->slot < *b->slot;
            });
  rows.clear();
  sampling.clear();
  for (const SequenceRun* run : active) {
    const int64_t position = state->length(*run->slot);
    state->Extend(*run->slot, 1);
    rows.push_back({.id = run->last_id(),
                    .slot = run->slot->value(),
                    .position = static_cast<int32_t>(position)});
    sampling.push_back(run->SamplingAt(position + 1));
  }
  SIGNET_ASSIGN_OR_RETURN(const exec::BoundProgram* program,
                          mesh->Decode(rows, sampling));
  for (size_t i = 0; i < active.size(); ++i) {
    const std::optional<Finish> finish =
        active[i]->Take(program->io().sampled[i], rows[i].position + 1, sink);
    active[i]->MarkToken(SecondsSince(start));
    if (finish) Finished(*active[i], *finish, nullptr, sink);
  }
  std::erase_if(active,
                [](const SequenceRun* run) { return !run->slot.has_value(); });
  return {};
}

// Takes no memory that it could not do without: every request gets its event.
void Session::Impl::Finished(SequenceRun& run, Finish finish,
                             const Error* error, Sink& sink) {
  if (run.slot) {
    state->Release(*run.slot);
    free_slots.push_back(*run.slot);
    run.slot.reset();
  }
  run.End(finish, error, sink);
}

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;
Session::~Session() = default;

Result<Session> Session::Make(const Model& model, int64_t slots) {
  return AtBoundary("session", [&] { return MakeHere(model, slots); });
}

Result<Session> Session::MakeHere(const Model& model, int64_t slots) {
  const Plan::Impl& made = *model.impl_->plan;
  const plan::PlanOptions& options = made.plan->options();
  if (slots < 1 || slots > options.batch) {
    return Reject(RejectionCode::kRequestInvalid, "session",
                  "the number of slots is out of range", std::to_string(slots),
                  fmt::format("1 ... {} (--batch)", options.batch));
  }
  auto impl = std::make_unique<Impl>();
  std::shared_ptr<const store::WeightVersion> weights;
  {
    const std::lock_guard lock(model.impl_->mutex);
    weights = model.impl_->weights;
    if (!weights) {
      return Fail(FailureKind::kState, "session", "the model is unloaded");
    }
    impl->guest = std::make_unique<Impl::Guest>(model.impl_);
  }
  Result<std::unique_ptr<exec::MeshExecutor>> bound =
      BindRanks(made, *model.impl_->engine, std::move(weights));
  if (made.world != nullptr) {
    const Result<void> own = bound.map([](const auto&) {});
    SIGNET_RETURN_IF_ERROR(
        made.world->Agree("bind", own.map([&] { return EpochFacts(made); })));
  }
  SIGNET_ASSIGN_OR_RETURN(impl->mesh, std::move(bound));
  impl->state.emplace(impl->mesh->MakeSequences(*made.plan));
  for (int64_t slot = slots - 1; slot >= 0; --slot) {
    impl->free_slots.push_back(SequenceSlot(static_cast<int32_t>(slot)));
  }
  return Session(std::move(impl));
}

Result<std::vector<SequenceRun>> Session::Impl::Begin(
    std::span<const Request> requests) {
  if (poisoned) {
    return Fail(FailureKind::kState, "session",
                "a step failed; the session needs a reset");
  }
  std::vector<SequenceRun> runs;
  runs.reserve(requests.size());
  RejectionList rejections;
  for (size_t i = 0; i < requests.size(); ++i) {
    Result<SequenceRun> run = Prepare(requests[i], i);
    if (run) {
      runs.push_back(*std::move(run));
    } else {
      rejections.Absorb(std::move(run).error());
    }
  }
  const Result<void> refusal =
      rejections.empty() ? Result<void>() : rejections.Take();
  if (World::Impl* const world = model().plan->world.get()) {
    SIGNET_RETURN_IF_ERROR(world->Agree("generate", refusal.map([&] {
      return RequestFacts(*model().plan, requests);
    })));
  }
  SIGNET_RETURN_IF_ERROR(refusal);
  return runs;
}

// `active` has room for as many as there are slots.
void Session::Impl::RunToEnds(std::vector<SequenceRun>& runs,
                              std::vector<SequenceRun*>& active, Sink& sink) {
  const Clock::time_point start = Clock::now();
  size_t next = 0;  // first run that has not begun
  // Ends everything unfinished with one cause.
  const auto end_all = [&](Finish finish, const Error* error) {
    for (SequenceRun* run : active) {
      // One without a slot had its event before the step failed.
      if (run->slot) Finished(*run, finish, error, sink);
    }
    for (; next < runs.size(); ++next) {
      Finished(runs[next], finish, error, sink);
    }
    active.clear();
  };
  while (next < runs.size() || !active.empty()) {
    if (abort.load(std::memory_order_relaxed)) {
      end_all(Finish::kAborted, nullptr);
      break;
    }
    const Result<void> stepped = AtBoundary("generate", [&]() -> Result<void> {
      if (next == runs.size() || free_slots.empty()) {
        return Decode(active, sink, start);
      }
      SequenceRun& run = runs[next++];
      run.slot = free_slots.back();
      free_slots.pop_back();
      active.push_back(&run);
      SIGNET_ASSIGN_OR_RETURN(const std::optional<Finish> finish,
                              Prefill(run, sink, start));
      if (finish) {
        active.pop_back();
        Finished(run, *finish, nullptr, sink);
      }
      return {};
    });
    if (!stepped) {
      poisoned = true;
      end_all(Finish::kError, &stepped.error());
      break;
    }
  }
}

Result<void> Session::Generate(std::span<const Request> requests, Sink& sink) {
  Impl& self = *impl_;
  std::vector<SequenceRun*> active;
  Result<std::vector<SequenceRun>> runs = AtBoundary("generate", [&] {
    active.reserve(self.free_slots.size());
    return self.Begin(requests);
  });
  if (!runs) return tl::unexpected<Error>(std::move(runs).error());
  self.RunToEnds(*runs, active, sink);
  self.abort.store(false, std::memory_order_relaxed);
  return {};
}

void Session::Abort() noexcept {
  impl_->abort.store(true, std::memory_order_relaxed);
}

void Session::Reset() {
  impl_->mesh->Reset();
  impl_->state->Reset();
  impl_->abort.store(false, std::memory_order_relaxed);
  impl_->poisoned = false;
}

}  // namespace signet
