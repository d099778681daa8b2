// Launches of a sealed program in two lanes: what touches the same memory stays
// in order.

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "backend/forwarding_device.h"
#include "exec/bound_program.h"
#include "exec/exec_testing.h"
#include "step/operands.h"
#include "support/running_model.h"

namespace signet::testing {
namespace {

using backend::Lane;

/// A side lane that runs at once what it is given, and counts it.
class CountingLane final : public backend::SideLane {
 public:
  explicit CountingLane(backend::Kernels& kernels) : kernels_(kernels) {}
  backend::Kernels& kernels() override {
    ++launches_;
    return kernels_;
  }
  void Mark(backend::LaunchKey, Lane lane, size_t point) override {
    marks_.insert({lane, point});
  }
  void Follow(backend::LaunchKey, Lane lane, size_t point) override {
    const Lane other = lane == Lane::kMain ? Lane::kSide : Lane::kMain;
    EXPECT_TRUE(marks_.count({other, point})) << "not marked: " << point;
    ++follows_;
  }
  size_t launches() const { return launches_; }
  size_t follows() const { return follows_; }

 private:
  backend::Kernels& kernels_;
  std::set<std::pair<Lane, size_t>> marks_;
  size_t launches_ = 0;
  size_t follows_ = 0;
};

/// What was recorded, enqueued anew for every launch.
class EnqueuedAnew final : public backend::Replay {
 public:
  explicit EnqueuedAnew(std::function<void()> enqueue)
      : enqueue_(std::move(enqueue)) {}
  void Launch(backend::LaunchKey) override { enqueue_(); }

 private:
  std::function<void()> enqueue_;
};

/// A device whose programs of more than `most` rows have lanes.
class LaneDevice final : public backend::ForwardingDevice {
 public:
  LaneDevice(backend::Device& inner, int64_t most)
      : ForwardingDevice(inner), most_(most), side_(inner.kernels()) {}
  backend::SideLane* side_lane(int64_t capacity) override {
    return capacity > most_ ? &side_ : nullptr;
  }
  Result<std::unique_ptr<backend::Replay>> Record(
      backend::LaunchKey, const std::function<void()>& enqueue) override {
    return std::make_unique<EnqueuedAnew>(enqueue);
  }
  const CountingLane& side() const { return side_; }

 private:
  int64_t most_;
  CountingLane side_;
};

// By the operands that the program states: the same bytes, one of them written.
bool Clash(const step::SealedProgram& program, size_t a, size_t b) {
  bool clash = false;
  const auto for_each = [&](size_t i, const auto& f) {
    step::ForEachOperand(program.steps()[i], [&](std::string_view, BufferId id,
                                                 step::Access access) {
      const step::BufferDecl& buffer = program.buffers()[id];
      if (IsOfWeights(buffer.arena)) return;
      f(buffer, access != step::Access::kRead);
    });
  };
  for_each(a, [&](const step::BufferDecl& one, bool one_written) {
    for_each(b, [&](const step::BufferDecl& other, bool other_written) {
      if (one.arena != other.arena || !(one_written || other_written)) return;
      if (one.offset_bytes < other.offset_bytes + other.size.value() &&
          other.offset_bytes < one.offset_bytes + one.size.value()) {
        clash = true;
      }
    });
  });
  return clash;
}

class BindLanes : public ::testing::Test {
 protected:
  // Of 4 rows, indexed, and of 64, grouped.
  static plan::PlanOptions Options() {
    plan::PlanOptions options = {.context = 128, .page_tokens = 16};
    options.prefill_chunks = {4, 64};
    return options;
  }

  BindLanes()
      : model_(MoeCheckpoint(8, 2), Options(), nullptr),
        sealed_(SealAll(model_.plan())) {}

  exec::Arenas MakeArenas(backend::Device& device,
                          const step::SealedProgram& program) {
    return ValueOrDie(exec::Arenas::Make(&device, program.arena_bytes(),
                                         model_.weights()->generation()));
  }

  RunningModel model_;
  std::vector<step::SealedProgram> sealed_;
};

TEST_F(BindLanes, WhatTouchesTheSameMemoryStaysInOrder) {
  LaneDevice device(model_.device(), 0);
  int with_side = 0;
  for (const step::SealedProgram& program : sealed_) {
    const exec::Arenas arenas = MakeArenas(device, program);
    const exec::BoundProgram bound = ValueOrDie(
        exec::Bind(program, model_.plan(), model_.weights(), arenas, nullptr));
    const auto places = bound.places();
    const size_t count = program.steps().size();
    ASSERT_EQ(places.size(), count);
    // What is complete when a launch starts.
    std::vector<std::vector<bool>> complete(count, std::vector<bool>(count));
    std::vector<std::string> on_side;
    for (size_t i = 0; i < count; ++i) {
      const auto after = [&](size_t earlier) {
        complete[i][earlier] = true;
        for (size_t j = 0; j < earlier; ++j) {
          if (complete[earlier][j]) complete[i][j] = true;
        }
      };
      for (size_t j = i; j-- > 0;) {
        if (places[j].lane != places[i].lane) continue;
        after(j);
        break;
      }
      if (places[i].follows) after(*places[i].follows);
      if (places[i].lane == Lane::kSide) on_side.push_back(bound.names()[i]);
      for (size_t j = 0; j < i; ++j) {
        ASSERT_TRUE(complete[i][j] || !Clash(program, i, j))
            << bound.names()[i] << " beside " << bound.names()[j];
      }
    }
    if (program.shape().rows == 1) continue;
    for (const char* part :
         {"projection shared.gate", "projection shared.up",
          "activation shared.act", "projection shared.down"}) {
      EXPECT_EQ(
          static_cast<size_t>(std::count(on_side.begin(), on_side.end(), part)),
          model_.plan().config().layers.size())
          << part << " of " << program.shape().rows << " rows";
    }
    ++with_side;
  }
  EXPECT_GE(with_side, 2);
}

// Each launch to its lane, after the point that it follows.
TEST_F(BindLanes, ARecordedProgramIsEnqueuedInItsLanes) {
  auto owned = std::make_unique<LaneDevice>(model_.device(), 4);
  const CountingLane& side = owned->side();
  RunningModel laned(MoeCheckpoint(8, 2), Options(),
                     RunsOn{.device = std::move(owned), .recorded = true});
  std::vector<int32_t> prompt(64);
  std::iota(prompt.begin(), prompt.end(), 1);
  laned.Prefill(SequenceSlot(0), prompt);
  size_t launches = 0;
  size_t follows = 0;
  for (const exec::BoundProgram& program : laned.programs().prefill()) {
    for (const exec::LanePlace& place : program.places()) {
      if (place.lane == Lane::kSide) ++launches;
      if (place.follows) ++follows;
    }
  }
  EXPECT_GT(launches, 0u);
  EXPECT_EQ(side.launches(), launches);
  EXPECT_EQ(side.follows(), follows);
}

TEST_F(BindLanes, NoLanesWhereTheDeviceOrAnObserverWantsNone) {
  class Nothing final : public exec::TapObserver {
    void OnStep(std::string_view, std::span<const exec::TapBuffer>,
                int64_t) override {}
  } observer;
  LaneDevice device(model_.device(), 4);
  for (const step::SealedProgram& program : sealed_) {
    const exec::Arenas arenas = MakeArenas(device, program);
    const auto bind = [&](exec::TapObserver* tap) {
      return ValueOrDie(
          exec::Bind(program, model_.plan(), model_.weights(), arenas, tap));
    };
    const exec::BoundProgram plain = bind(nullptr);
    EXPECT_EQ(plain.places().empty(), program.shape().rows <= 4);
    const exec::BoundProgram observed = bind(&observer);
    EXPECT_TRUE(observed.places().empty());
  }
}

}  // namespace
}  // namespace signet::testing
