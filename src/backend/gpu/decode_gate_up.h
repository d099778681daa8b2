#pragma once
// Route, gate, up and activation of the selected experts in one short kernel,
// for up to eight rows of whole steps of bf16 weights; for one row, gate and up
// of the shared expert beside the route.

#include "backend/fused_kernels.h"
#include "backend/gpu/vendor.h"

namespace signet::backend::gpu {

/// Whether this kernel takes the launch.
bool TakesGateUp(const RouteGateUpArgs& args);

/// What down needs of a slot: where its expert's rows lie, null if that is no
/// expert of this rank; its weight; and its lane in the fold.
struct alignas(16) DownSlot {
  const char* down;
  float weight;
  int32_t fold_lane;
};

inline constexpr int kMaxListedSlots = 64;

/// [S] on the device, written with the route; and the fold's lanes, of all
/// ranks, from the first of this rank on.
struct DownSlots {
  DownSlot* slots = nullptr;
  int64_t lanes = 0;
  int64_t first_lane = 0;
};

/// The shared expert, which needs no route: out = silu(x gate^T) * x up^T.
struct SharedGateUp {
  const void* gate = nullptr;  // [width, H], bf16
  const void* up = nullptr;    // [width, H], bf16
  float* out = nullptr;        // [1, width]
  int64_t width = 0;
};

/// Whether the kernel takes `shared` too, of the same input row.
bool TakesSharedGateUp(const RouteGateUpArgs& args, const SharedGateUp& shared);

/// The bits of Route, IndexedGateUp and Activation, and of the products and the
/// activation of `shared`. Only where TakesGateUp says so, and
/// TakesSharedGateUp of a `shared` of any width. `down` is filled if it has
/// slots.
Status RunGateUp(Stream stream, int num_sms, const RouteGateUpArgs& args,
                 const SharedGateUp& shared = {}, const DownSlots& down = {});

}  // namespace signet::backend::gpu
