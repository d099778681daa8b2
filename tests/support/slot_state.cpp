#include "support/slot_state.h"

#include <fmt/format.h>

#include <bit>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

namespace signet::testing {
namespace {

class Gatherer {
 public:
  Gatherer(RunningModel& model, SequenceSlot slot)
      : model_(model),
        slot_(slot.value()),
        length_(model.state().length(slot)),
        kv_(ValueOrDie(model.programs().arenas().Look(MemoryClass::kKv))),
        recurrent_(ValueOrDie(
            model.programs().arenas().Look(MemoryClass::kRecurrent))) {}

  // A buffer with the slots in front.
  OracleTensor OfSlot(const plan::StateBuffer& buffer) const {
    OracleTensor result;
    int64_t size = 1;
    for (int i = 1; i < buffer.shape.num_dims(); ++i) {
      result.shape.push_back(buffer.shape[i]);
      size *= buffer.shape[i];
    }
    Append(buffer, slot_ * size, size, &result.data);
    return result;
  }

  // A buffer of pages.
  OracleTensor OfPages(const plan::StateBuffer& buffer) const {
    const int64_t page_tokens = buffer.shape[1];
    const int64_t row = buffer.shape[2] * buffer.shape[3];
    const std::span<const int32_t> table = model_.programs().page_table();
    const int64_t pages_per_slot = model_.plan().pool().pages_per_slot;
    OracleTensor result{{length_, buffer.shape[2], buffer.shape[3]}, {}};
    for (int64_t t = 0; t < length_; ++t) {
      const int64_t page =
          table[static_cast<size_t>(slot_ * pages_per_slot + t / page_tokens)];
      Append(buffer, (page * page_tokens + t % page_tokens) * row, row,
             &result.data);
    }
    return result;
  }

 private:
  // `count` elements of a buffer from `first` on.
  void Append(const plan::StateBuffer& buffer, int64_t first, int64_t count,
              std::vector<double>* to) const {
    const auto& arena = buffer.arena == MemoryClass::kKv ? kv_ : recurrent_;
    const std::byte* data = arena.data() + buffer.offset_bytes;
    for (int64_t i = first; i < first + count; ++i) {
      float value = 0;
      if (buffer.dtype == tensor::DType::kF32) {
        std::memcpy(&value, data + 4 * i, 4);
      } else if (buffer.dtype == tensor::DType::kBF16) {
        uint16_t upper = 0;
        std::memcpy(&upper, data + 2 * i, 2);
        value = std::bit_cast<float>(uint32_t{upper} << 16);
      } else {
        std::abort();
      }
      to->push_back(value);
    }
  }

  RunningModel& model_;
  int64_t slot_;
  int64_t length_;
  std::span<const std::byte> kv_;
  std::span<const std::byte> recurrent_;
};

}  // namespace

std::map<std::string, OracleTensor> SlotState(RunningModel& model,
                                              SequenceSlot slot) {
  const Gatherer gatherer(model, slot);
  std::map<std::string, OracleTensor> state;
  const auto& layers = model.plan().state(Rank(0)).layers;
  for (size_t i = 0; i < layers.size(); ++i) {
    const plan::LayerState& layer = layers[i];
    if (layer.k) {
      state[fmt::format("k.{}", i)] = gatherer.OfPages(*layer.k);
      state[fmt::format("v.{}", i)] = gatherer.OfPages(*layer.v);
    } else {
      state[fmt::format("recurrent.{}", i)] = gatherer.OfSlot(*layer.recurrent);
      state[fmt::format("conv.{}", i)] = gatherer.OfSlot(*layer.conv);
    }
  }
  return state;
}

}  // namespace signet::testing
