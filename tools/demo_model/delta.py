# SPDX-License-Identifier: Apache-2.0
"""The gated delta rule step by step, forward and backward, as one Triton kernel each.

    S <- exp(g) S;  d = beta (v - S^T k);  S <- S + k d^T;  o = S^T q

A column of the state depends on its own entry of v alone, so columns are split between programs. The
forward pass keeps every state: heads here are 32 x 32, which makes that cheaper than recomputing.
"""

import torch
import triton
import triton.language as tl

COLUMNS = 16  # of the state, per program


@triton.jit
def forward_kernel(
    q, k, v, g, beta, out, states, length: tl.constexpr, H: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr,
    COLS: tl.constexpr, SAVE: tl.constexpr,
):  # fmt: skip
    sequence = tl.program_id(0)
    rows = tl.arange(0, DK)
    cols = tl.program_id(1) * COLS + tl.arange(0, COLS)
    at = (sequence // H) * length * H + sequence % H
    tile = states + sequence.to(tl.int64) * length * DK * DV + rows[:, None] * DV + cols[None, :]
    state = tl.zeros([DK, COLS], tl.float32)
    # The next step's inputs are read while this one computes.
    q1 = tl.load(q + at * DK + rows)
    k1 = tl.load(k + at * DK + rows)
    v1 = tl.load(v + at * DV + cols)
    g1 = tl.load(g + at)
    b1 = tl.load(beta + at)
    for t in range(length):
        q0, k0, v0, g0, b0, here = q1, k1, v1, g1, b1, at
        at = tl.where(t + 1 < length, at + H, at)
        q1 = tl.load(q + at * DK + rows)
        k1 = tl.load(k + at * DK + rows)
        v1 = tl.load(v + at * DV + cols)
        g1 = tl.load(g + at)
        b1 = tl.load(beta + at)
        state = state * tl.exp(g0)
        d = b0 * (v0 - tl.sum(state * k0[:, None], 0))
        state = state + k0[:, None] * d[None, :]
        tl.store(out + here * DV + cols, tl.sum(state * q0[:, None], 0))
        if SAVE:
            tl.store(tile, state)
            tile += DK * DV


@triton.jit
def backward_kernel(
    q, k, v, g, beta, states, dout, dq, dk, dv, dg, dbeta, length: tl.constexpr, count, H: tl.constexpr, DK: tl.constexpr,
    DV: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """dq, dk, dg and dbeta are partial sums, one slab of `count` steps for each group of columns."""
    sequence = tl.program_id(0)
    group = tl.program_id(1).to(tl.int64)
    rows = tl.arange(0, DK)
    cols = tl.program_id(1) * COLS + tl.arange(0, COLS)
    at = (sequence // H) * length * H + sequence % H + (length - 1) * H
    tile = states + sequence.to(tl.int64) * length * DK * DV + rows[:, None] * DV + cols[None, :]
    tile += (length - 2) * DK * DV
    dq += group * count * DK
    dk += group * count * DK
    dg += group * count
    dbeta += group * count
    grad = tl.zeros([DK, COLS], tl.float32)
    q1 = tl.load(q + at * DK + rows)
    k1 = tl.load(k + at * DK + rows)
    v1 = tl.load(v + at * DV + cols)
    o1 = tl.load(dout + at * DV + cols)
    g1 = tl.load(g + at)
    b1 = tl.load(beta + at)
    s1 = tl.load(tile)
    for step in range(length):
        q0, k0, v0, o0, g0, b0, s0, here = q1, k1, v1, o1, g1, b1, s1, at
        first = step + 1 == length
        at = tl.where(first, at, at - H)
        tile -= tl.where(step + 2 < length, DK * DV, 0)
        q1 = tl.load(q + at * DK + rows)
        k1 = tl.load(k + at * DK + rows)
        v1 = tl.load(v + at * DV + cols)
        o1 = tl.load(dout + at * DV + cols)
        g1 = tl.load(g + at)
        b1 = tl.load(beta + at)
        s1 = tl.load(tile)

        decay = tl.exp(g0)
        decayed = tl.where(first, 0.0, s0) * decay
        error = v0 - tl.sum(decayed * k0[:, None], 0)
        d = b0 * error
        state = decayed + k0[:, None] * d[None, :]
        grad = grad + q0[:, None] * o0[None, :]
        dd = tl.sum(grad * k0[:, None], 0)
        dr = -b0 * dd
        tl.store(dq + here * DK + rows, tl.sum(state * o0[None, :], 1))
        tl.store(dk + here * DK + rows, tl.sum(grad * d[None, :] + decayed * dr[None, :], 1))
        tl.store(dv + here * DV + cols, b0 * dd)
        tl.store(dbeta + here, tl.sum(dd * error, 0))
        grad = grad + k0[:, None] * dr[None, :]
        tl.store(dg + here, tl.sum(tl.sum(grad * decayed, 1), 0))
        grad = grad * decay


@torch.library.custom_op("demo::delta_rule", mutates_args=())
def rule(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, g: torch.Tensor, beta: torch.Tensor, save: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """q, k [B,T,H,DK], v [B,T,H,DV], g and beta [B,T,H]; all fp32. q and k come normalised."""
    q, k, v, g, beta = (x.contiguous() for x in (q, k, v, g, beta))
    batch, length, heads, dk = q.shape
    dv = v.shape[-1]
    out = torch.empty_like(v)
    states = q.new_empty((batch * heads, length, dk, dv) if save else (1,))
    grid = (batch * heads, dv // COLUMNS)
    forward_kernel[grid](q, k, v, g, beta, out, states, length, heads, dk, dv, COLUMNS, save, num_warps=1)
    return out, states


@rule.register_fake
def _(q, k, v, g, beta, save):
    batch, length, heads, dk = q.shape
    states = q.new_empty((batch * heads, length, dk, v.shape[-1]) if save else (1,))
    return v.new_empty(v.shape), states


@torch.library.custom_op("demo::delta_rule_backward", mutates_args=())
def rule_backward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    states: torch.Tensor,
    dout: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    q, k, v, g, beta, dout = (x.contiguous() for x in (q, k, v, g, beta, dout))
    batch, length, heads, dk = q.shape
    dv = v.shape[-1]
    groups = dv // COLUMNS
    dq, dkey = q.new_empty((groups, *q.shape)), q.new_empty((groups, *k.shape))
    dg, dbeta = q.new_empty((groups, *g.shape)), q.new_empty((groups, *beta.shape))
    dvalue = torch.empty_like(v)
    backward_kernel[(batch * heads, groups)](
        q, k, v, g, beta, states, dout, dq, dkey, dvalue, dg, dbeta, length, g.numel(), heads, dk, dv, COLUMNS,
        num_warps=1,
    )  # fmt: skip
    return dq.sum(0), dkey.sum(0), dvalue, dg.sum(0), dbeta.sum(0)


@rule_backward.register_fake
def _(q, k, v, g, beta, states, dout):
    return tuple(x.new_empty(x.shape) for x in (q, k, v, g, beta))


def _setup(ctx, inputs, output):
    ctx.save_for_backward(*inputs[:5], output[1])


def _backward(ctx, dout, _):
    return *rule_backward(*ctx.saved_tensors, dout), None


rule.register_autograd(_backward, setup_context=_setup)
