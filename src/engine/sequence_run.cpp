#include "engine/sequence_run.h"

#include <algorithm>
#include <new>
#include <utility>

#include "engine/boundary.h"

namespace signet {

SequenceRun::SequenceRun(Setup setup)
    : setup_(std::move(setup)), stops_(setup_.request->stops) {
  if (setup_.tokenizer != nullptr) decoder_.emplace(setup_.tokenizer);
}

backend::SamplingRow SequenceRun::SamplingAt(int64_t position) const {
  const Sampling& sampling = setup_.request->sampling;
  return {.temperature = sampling.temperature,
          .top_k = sampling.top_k,
          .top_p = sampling.top_p,
          .id_bound = setup_.id_bound,
          .seed_low = static_cast<uint32_t>(sampling.seed),
          .seed_high = static_cast<uint32_t>(sampling.seed >> 32),
          .sequence = setup_.request->sequence,
          .position = static_cast<uint32_t>(position)};
}

std::optional<Finish> SequenceRun::Take(int32_t id, int64_t position,
                                        Sink& sink) {
  last_id_ = id;
  if (!setup_.request->ignore_eos &&
      std::binary_search(setup_.stop_ids.begin(), setup_.stop_ids.end(), id)) {
    return Finish::kStop;
  }
  ++tokens_;
  std::string text;
  if (decoder_) {
    text::StopMatcher::Piece piece = stops_.Push(decoder_->Push(id));
    text = std::move(piece.text);
    stopped_by_text_ = piece.stopped;
  }
  sink.OnToken({.request = setup_.index, .id = id, .text = text});
  if (stopped_by_text_) return Finish::kStop;
  if (tokens_ >= setup_.request->max_tokens) return Finish::kLength;
  // The token would have to be fed at `position`, past the last one there is.
  if (position >= setup_.context) {
    context_full_ = true;
    return Finish::kLength;
  }
  return std::nullopt;
}

void SequenceRun::MarkToken(double seconds) {
  if (tokens_ <= 1) first_token_ = seconds;
  last_token_ = seconds;
}

void SequenceRun::End(Finish finish, const Error* error, Sink& sink) {
  std::string text;
  std::optional<Error> told;
  try {
    if (error != nullptr) told = *error;
    if (decoder_ && !stopped_by_text_) {
      text = stops_.Push(decoder_->Finish()).text;
      text += stops_.Finish();
    }
  } catch (const std::bad_alloc&) {
    finish = Finish::kError;
    told = OutOfMemory("generate").value();
  }
  const double decode_seconds = last_token_ - first_token_;
  const bool timed = tokens_ > 1 && decode_seconds > 0;
  sink.OnEnd(
      {.request = setup_.index,
       .finish = finish,
       .text = text,
       .error = std::move(told),
       .context_full = context_full_,
       .prompt_tokens = static_cast<int64_t>(setup_.prompt.size()),
       .tokens = tokens_,
       .first_token_ms = tokens_ > 0 ? 1e3 * (first_token_ - start_) : 0.0,
       .decode_tokens_per_second =
           timed ? static_cast<double>(tokens_ - 1) / decode_seconds : 0.0});
}

}  // namespace signet
