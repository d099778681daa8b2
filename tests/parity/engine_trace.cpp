#include "parity/engine_trace.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "support/running_model.h"
#include "support/slot_state.h"

namespace signet::testing {
namespace {

constexpr std::string_view kResidual = ".residual";
constexpr std::string_view kRouterIds = ".moe.ids";

// 3 of `l3.residual`.
int LayerOfBuffer(const std::string& name) {
  return std::atoi(name.c_str() + 1);
}

}  // namespace

void TraceRecorder::OnStep(std::string_view /*kind*/,
                           std::span<const exec::TapBuffer> written,
                           int64_t live_rows) {
  for (const exec::TapBuffer& buffer : written) Append(buffer, live_rows);
}

void TraceRecorder::Append(const exec::TapBuffer& buffer, int64_t live_rows) {
  const auto width =
      static_cast<size_t>(buffer.shape.num_dims() == 2 ? buffer.shape[1] : 0);
  if (buffer.name.ends_with(kResidual)) {
    const auto* values = static_cast<const float*>(buffer.data);
    OracleTensor& tensor =
        residual_["residual." + std::to_string(LayerOfBuffer(buffer.name))];
    if (tensor.shape.empty()) {
      tensor.shape = {0, static_cast<int64_t>(width)};
    }
    tensor.shape[0] += live_rows;
    tensor.data.insert(tensor.data.end(), values,
                       values + static_cast<size_t>(live_rows) * width);
  } else if (buffer.name.ends_with(kRouterIds)) {
    const auto* ids = static_cast<const int32_t*>(buffer.data);
    auto& rows = routes_[LayerOfBuffer(buffer.name)];
    for (int64_t row = 0; row < live_rows; ++row, ids += width) {
      rows.emplace_back(ids, ids + width);
    }
  }
}

void TraceRecorder::MoveInto(Trace* trace) {
  trace->tensors.merge(residual_);
  residual_.clear();
  for (auto& [layer, rows] : routes_) trace->routes.push_back(std::move(rows));
  routes_.clear();
}

EngineRun RunEngine(const std::filesystem::path& folder,
                    plan::PlanOptions options,
                    const std::vector<int32_t>& prompt,
                    const std::vector<int32_t>& fed) {
  options.batch = std::max<int64_t>(options.batch, 2);
  options.all_logits = true;
  TraceRecorder recorder;
  RunningModel model(folder, options, &recorder);
  const SequenceSlot slot(1);
  // The neighbour takes the first pages, so that page numbers are not indices.
  model.Prefill(SequenceSlot(0), {prompt.front(), prompt.back()});
  Trace unused;
  recorder.MoveInto(&unused);

  EngineRun run;
  std::vector<float> logits = model.Prefill(slot, prompt);
  // The last call held what the full chunks left.
  const auto chunk = static_cast<size_t>(model.plan().shapes().back().rows);
  run.sampled.push_back(model.Sampled((prompt.size() - 1) % chunk));
  for (const int32_t token : fed) {
    const std::vector<float> row = model.Decode({slot}, {token});
    logits.insert(logits.end(), row.begin(), row.end());
    run.sampled.push_back(model.Sampled(0));
  }
  recorder.MoveInto(&run.trace);
  const auto positions = static_cast<int64_t>(prompt.size() + fed.size());
  run.trace.tensors["logits"] = {
      {positions, static_cast<int64_t>(logits.size()) / positions},
      {logits.begin(), logits.end()}};
  run.trace.tensors.merge(SlotState(model, slot));
  return run;
}

}  // namespace signet::testing
