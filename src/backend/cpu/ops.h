#pragma once
// The CPU body of each op, one function an op, implemented one concept a file.
// Called by CpuKernels alone. Each is a definition over views; see the argument
// structs in backend/kernels.h for the contracts.

#include "backend/cpu/thread_pool.h"
#include "backend/kernels.h"

namespace signet::backend::cpu {

// embed.cpp, projection.cpp
void Embed(ThreadPool& pool, const EmbedArgs& args);
void Projection(ThreadPool& pool, const ProjectionArgs& args);
void Logits(ThreadPool& pool, const LogitsArgs& args);
// moe_indexed.cpp, moe_grouped.cpp, moe_scatter.cpp, moe_combine.cpp
void IndexedGateUp(ThreadPool& pool, const IndexedGateUpArgs& args);
void IndexedDown(ThreadPool& pool, const IndexedDownArgs& args);
void Scatter(ThreadPool& pool, const ScatterArgs& args);
void GroupedGateUp(ThreadPool& pool, const GroupedGateUpArgs& args);
void GroupedDown(ThreadPool& pool, const GroupedDownArgs& args);
void Unscatter(ThreadPool& pool, const UnscatterArgs& args);
void Combine(ThreadPool& pool, const CombineArgs& args);
// route.cpp
void Route(ThreadPool& pool, const RouteArgs& args);
void PrecomputedRoute(ThreadPool& pool, const PrecomputedRouteArgs& args);
// norm.cpp
void Norm(ThreadPool& pool, const NormArgs& args);
void GatedNorm(ThreadPool& pool, const GatedNormArgs& args);
// elementwise.cpp
void Activation(ThreadPool& pool, const ActivationArgs& args);
void Round(ThreadPool& pool, const RoundArgs& args);
void ResidualAdd(ThreadPool& pool, const ResidualAddArgs& args);
void GatedAdd(ThreadPool& pool, const GatedAddArgs& args);
void IdentityReduce(ThreadPool& pool, const IdentityReduceArgs& args);
// conv.cpp
void Conv(ThreadPool& pool, const ConvArgs& args);
// delta_recurrent.cpp, delta_chunked.cpp
void DeltaRecurrent(ThreadPool& pool, const DeltaRuleArgs& args);
void DeltaChunked(ThreadPool& pool, const DeltaRuleArgs& args);
// rope.cpp, attention.cpp
void QkNormRope(ThreadPool& pool, const QkNormRopeArgs& args);
void KvAppend(ThreadPool& pool, const KvAppendArgs& args);
void Attention(ThreadPool& pool, const AttentionArgs& args);
// sample.cpp
void Sample(ThreadPool& pool, const SampleArgs& args);

}  // namespace signet::backend::cpu
