#include <utility>

#include "base/result.h"
#include "engine/boundary.h"
#include "engine/engine_impl.h"
#include "signet/engine.h"
#include "text/chat_prompt.h"

namespace signet {

Model::Model(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

Result<std::vector<int32_t>> Model::Impl::Encode(std::string_view text) const {
  if (!tokenizer) {
    return Reject(RejectionCode::kRequestInvalid, "prompt",
                  "the checkpoint has no tokenizer.json; give token ids");
  }
  return tokenizer->Encode(text);
}

Result<std::vector<int32_t>> Model::Impl::EncodeChat(const Chat& wanted) const {
  SIGNET_RETURN_IF_ERROR(chat);
  return text::EncodeChat(*tokenizer, wanted);
}

Result<std::vector<int32_t>> Model::Encode(std::string_view text) const {
  return AtBoundary("encode", [&] { return impl_->Encode(text); });
}

Result<std::vector<int32_t>> Model::EncodeChat(const Chat& chat) const {
  return AtBoundary("encode", [&] { return impl_->EncodeChat(chat); });
}

bool Model::has_tokenizer() const { return impl_->tokenizer != nullptr; }

bool Model::has_chat_template() const {
  return impl_->plan->source->checkpoint->has_chat_template();
}

Sampling Model::default_sampling() const {
  const model::GenerationConfig& config = impl_->plan->source->generation;
  if (!config.do_sample) return {};
  return {.temperature = config.temperature,
          .top_k = config.top_k,
          .top_p = config.top_p};
}

const std::vector<int32_t>& Model::stop_ids() const { return impl_->stop_ids; }

const std::string& Model::contract_id() const {
  return impl_->plan->contract_id;
}

const std::optional<std::string>& Model::content_digest() const {
  return impl_->content_digest;
}

Result<void> Model::Unload() {
  const std::lock_guard lock(impl_->mutex);
  if (impl_->sessions > 0) {
    return AtBoundary("unload", [&]() -> Result<void> {
      return Fail(FailureKind::kState, "unload",
                  "sessions are alive on this model: " +
                      std::to_string(impl_->sessions));
    });
  }
  impl_->weights.reset();
  return {};
}

}  // namespace signet
