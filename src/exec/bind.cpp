// Sealed steps to launches with addresses. The program is proven; only the
// world it is bound to is checked here (contract S8).

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "exec/binder.h"
#include "exec/fuse.h"
#include "plan/layouter.h"
#include "step/operands.h"

namespace signet::exec {

using step::BufferDecl;

Result<void> Binder::Check() const {
  RejectionList rejections;
  const auto contract = [&](const char* what, const Digest& got) {
    if (got == program_.contract()) return;
    rejections.Add(RejectionCode::kBindContractMismatch, what,
                   "made for another contract", got.Hex(),
                   program_.contract().Hex());
  };
  contract("plan", plan_.contract_id());
  contract("weights", weights_->contract());
  if (arenas_.generation() != weights_->generation()) {
    rejections.Add(RejectionCode::kBindGenerationStale, "arenas",
                   "made for weights of another generation",
                   std::to_string(arenas_.generation()),
                   std::to_string(weights_->generation()));
  }
  const topology::DeviceIdentity& device = plan_.mesh().device(program_.rank());
  if (arenas_.device()->facts().identity != device.uuid) {
    rejections.Add(RejectionCode::kBindArenaDevice, "arenas",
                   "on a device that is not the rank's",
                   arenas_.device()->facts().identity, device.uuid);
  }
  for (const auto& [memory_class, planned] : program_.arena_bytes()) {
    const std::string where(Name(memory_class));
    if (IsOfWeights(memory_class)) {
      const Bytes got = weights_->memory_bytes(program_.rank(), memory_class);
      if (got != planned) {
        rejections.Add(RejectionCode::kBindArenaTooSmall, where,
                       "the rank's weights are not the bytes planned",
                       std::to_string(got.value()),
                       std::to_string(planned.value()));
      }
      continue;
    }
    if (arenas_.size(memory_class) < planned) {
      rejections.Add(RejectionCode::kBindArenaTooSmall, where,
                     "an arena is smaller than planned",
                     std::to_string(arenas_.size(memory_class).value()),
                     std::to_string(planned.value()));
    }
    const auto address =
        reinterpret_cast<uintptr_t>(arenas_.data(memory_class));
    if (address % plan::kBufferAlignment != 0) {
      rejections.Add(RejectionCode::kBindArenaMisaligned, where,
                     "an arena is not aligned", fmt::format("{:#x}", address),
                     std::to_string(plan::kBufferAlignment));
    }
  }
  if (!rejections.empty()) return rejections.Take();
  return {};
}

std::byte* Binder::Raw(BufferId id) const {
  const BufferDecl& buffer = Decl(id);
  return arenas_.data(buffer.arena) + buffer.offset_bytes;
}

IoViews Binder::Io() const {
  const auto find = [&]<typename T>(step::IoRole role, T*& view) {
    view = HostAddress<T>(program_.FindIo(role));
  };
  const auto find_output = [&]<typename T>(step::IoRole role, const T*& view) {
    view = HostAddress<T>(program_.FindIo(role));
  };
  IoViews io;
  find(step::IoRole::kLive, io.live);
  find(step::IoRole::kIds, io.ids);
  find(step::IoRole::kSlot, io.slot);
  find(step::IoRole::kPosition, io.position);
  find(step::IoRole::kSampling, io.sampling);
  find(step::IoRole::kFlags, io.flags);
  find(step::IoRole::kPageTable, io.page_table);
  find(step::IoRole::kInvFreq, io.inv_freq);
  find(step::IoRole::kRouteIds, io.route_ids);
  find(step::IoRole::kRouteWeights, io.route_weights);
  find(step::IoRole::kBlockInput, io.block_input);
  find_output(step::IoRole::kSampled, io.sampled);
  find_output(step::IoRole::kLogits, io.logits);
  find_output(step::IoRole::kBlockOutput, io.block_output);
  return io;
}

std::string Binder::NameOf(size_t first, size_t count) const {
  std::string name;
  std::string_view before;
  for (const step::Step& step : program_.steps().subspan(first, count)) {
    const std::string_view kind = KindName(step);
    if (kind == before) continue;
    if (!name.empty()) name += '+';
    name += kind;
    before = kind;
  }
  std::string target;
  step::ForEachOperand(program_.steps()[first + count - 1],
                       [&](std::string_view, BufferId id, step::Access access) {
                         if (access == step::Access::kWrite)
                           target = Decl(id).name;
                       });
  if (target.empty()) return name;  // it only adds to state
  // Buffers of layers are called l3.name.
  const size_t dot = target.find('.');
  const bool of_layer =
      dot != std::string::npos && target[0] == 'l' && dot > 1 &&
      std::all_of(target.begin() + 1, target.begin() + static_cast<long>(dot),
                  [](char c) { return c >= '0' && c <= '9'; });
  return name + " " + (of_layer ? target.substr(dot + 1) : target);
}

bool Binder::AreDisjoint(size_t first, size_t count) const {
  std::set<BufferId> ids;
  for (const step::Step& step : program_.steps().subspan(first, count)) {
    step::ForEachOperand(step,
                         [&](std::string_view, BufferId id, step::Access) {
                           if (!IsOfWeights(Decl(id).arena)) ids.insert(id);
                         });
  }
  using Range = std::tuple<MemoryClass, uint64_t, uint64_t>;  // begin, end
  std::vector<Range> ranges;
  for (const BufferId id : ids) {
    const BufferDecl& buffer = Decl(id);
    ranges.emplace_back(buffer.arena, buffer.offset_bytes,
                        buffer.offset_bytes + buffer.size.value());
  }
  std::sort(ranges.begin(), ranges.end());
  return std::adjacent_find(ranges.begin(), ranges.end(),
                            [](const Range& a, const Range& b) {
                              return std::get<0>(a) == std::get<0>(b) &&
                                     std::get<2>(a) > std::get<1>(b);
                            }) == ranges.end();
}

Mirrors Binder::MirrorsOf() const {
  Mirrors mirrors;
  const auto part = [&](MemoryClass arena, uint64_t offset, Bytes size) {
    return backend::MirrorPart{.device = arenas_.data(arena) + offset,
                               .host = arenas_.host(arena) + offset,
                               .bytes = size.value()};
  };
  if (arenas_.data(MemoryClass::kIo) == arenas_.host(MemoryClass::kIo)) {
    return mirrors;
  }
  for (size_t i = 0; i < program_.buffers().size(); ++i) {
    const BufferDecl& buffer =
        program_.buffers()[BufferId(static_cast<int32_t>(i))];
    if (buffer.arena != MemoryClass::kIo) continue;
    const backend::MirrorPart io =
        part(buffer.arena, buffer.offset_bytes, buffer.size);
    const bool is_flag = buffer.kind == step::BufferKind::kFlag;
    if (buffer.kind == step::BufferKind::kInput || is_flag) {
      mirrors.inputs.push_back(io);
    }
    if (buffer.io == step::IoRole::kSampled ||
        buffer.io == step::IoRole::kBlockOutput || is_flag) {
      mirrors.outputs.push_back(io);
    }
  }
  SIGNET_CHECK(mirrors.inputs.size() <= backend::kMaxMirrorParts);
  mirrors.tables =
      part(MemoryClass::kTables, 0, arenas_.size(MemoryClass::kTables));
  return mirrors;
}

BoundProgram Binder::Build(TapObserver* observer) && {
  const IoViews io = Io();
  const auto scalar = [&](step::IoRole role) {
    return Address<int32_t>(program_.FindIo(role));
  };
  rows_ = {.live = scalar(step::IoRole::kLive),
           .slot = scalar(step::IoRole::kSlot),
           .position = scalar(step::IoRole::kPosition),
           .capacity = program_.shape().rows};
  std::vector<Launch> launches;
  launches.reserve(program_.steps().size());
  for (const step::Step& step : program_.steps()) {
    launches.push_back(
        std::visit([&](const auto& s) { return Resolve(s); }, step));
  }
  std::vector<FusedLaunch> fused;
  if (observer == nullptr && arenas_.device()->kernels().fused() != nullptr) {
    fused = Fuse(launches, [this](size_t first, size_t count) {
      return AreDisjoint(first, count);
    });
  } else {
    for (const Launch& launch : launches) fused.push_back({launch, 1});
  }
  launches.clear();
  std::vector<std::string> names;
  std::vector<size_t> counts;
  size_t step = 0;
  for (const FusedLaunch& launch : fused) {
    launches.push_back(launch.launch);
    names.push_back(NameOf(step, launch.count));
    counts.push_back(launch.count);
    step += launch.count;
  }
  std::vector<LanePlace> places;
  if (observer == nullptr) places = PlacesOf(counts);
  std::optional<TapPoints> taps;
  if (observer != nullptr) {
    taps = TapPoints{.observer = observer, .points = {}};
    for (const step::Step& step : program_.steps()) {
      TapPoints::Point& point =
          taps->points.emplace_back(TapPoints::Point{KindName(step), {}});
      step::ForEachOperand(
          step, [&](std::string_view, BufferId id, step::Access access) {
            if (access == step::Access::kRead) return;
            const BufferDecl& buffer = Decl(id);
            point.written.push_back(
                {buffer.name, buffer.dtype, buffer.shape, Raw(id)});
          });
    }
  }
  const model::ModelConfig& config = plan_.config();
  const CallLimits limits = {.context = plan_.options().context,
                             .slots = plan_.options().batch,
                             .vocab = config.vocab,
                             .hidden = config.hidden,
                             .top_k = config.top_k,
                             .pages = plan_.pool().num_pages,
                             .pages_per_slot = plan_.pool().pages_per_slot,
                             .page_tokens = plan_.options().page_tokens};
  const uint64_t generation = weights_->generation();
  return BoundProgram(PassKey<Binder>(),
                      BoundProgram::Content{.shape = program_.shape(),
                                            .recipe = program_.recipe(),
                                            .limits = limits,
                                            .generation = generation,
                                            .weights = std::move(weights_),
                                            .arenas = &arenas_,
                                            .io = io,
                                            .mirrors = MirrorsOf(),
                                            .launches = std::move(launches),
                                            .places = std::move(places),
                                            .names = std::move(names),
                                            .taps = std::move(taps)});
}

Result<BoundProgram> Bind(const step::SealedProgram& program,
                          const plan::ModelPlan& plan,
                          std::shared_ptr<const store::WeightVersion> weights,
                          const Arenas& arenas, TapObserver* observer,
                          const collective::RankCommunicators& communicators) {
  Binder binder(program, plan, std::move(weights), arenas, communicators);
  SIGNET_RETURN_IF_ERROR(binder.Check());
  return std::move(binder).Build(observer);
}

}  // namespace signet::exec
