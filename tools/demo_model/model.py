# SPDX-License-Identifier: Apache-2.0
"""The shape of the demo model, and a forward pass for training it.

The weights live in transformers' own Qwen3_5MoeForCausalLM. Its forward pass launches far too many small
kernels to train a model of this size quickly, so training runs the functions below on the same
parameters: the mathematics is transformers' (`self_test` compares the two), with these differences in
the order of work. All experts are computed as one wide MLP whose hidden units are scaled by the routing
weight (0 for experts not chosen); the delta rule is one kernel each way; dropout is
added on the embedding and on both residual branches.
"""

import torch
import torch.nn.functional as F
from transformers import Qwen3_5MoeForCausalLM, Qwen3_5MoeTextConfig

try:
    import delta
except ImportError:  # no Triton: the chunked form below is used
    delta = None

VOCAB = 4096
CHUNK = 32  # of the delta rule


def text_config(**overrides) -> Qwen3_5MoeTextConfig:
    values = dict(
        vocab_size=VOCAB,
        hidden_size=256,
        num_hidden_layers=8,
        layer_types=["full_attention" if (i + 1) % 4 == 0 else "linear_attention" for i in range(8)],
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        linear_num_key_heads=4,
        linear_num_value_heads=8,
        linear_key_head_dim=32,
        linear_value_head_dim=32,
        linear_conv_kernel_dim=4,
        num_experts=16,
        num_experts_per_tok=4,
        moe_intermediate_size=64,
        shared_expert_intermediate_size=64,
        hidden_act="silu",
        rms_norm_eps=1e-6,
        initializer_range=0.02,
        max_position_embeddings=4096,
        rope_parameters={
            "rope_type": "default",
            "rope_theta": 10000.0,
            "partial_rotary_factor": 0.25,
            "mrope_interleaved": True,
            "mrope_section": [3, 3, 2],
        },
        tie_word_embeddings=True,
        router_aux_loss_coef=0.01,
        output_router_logits=False,
        bos_token_id=None,
        eos_token_id=VOCAB - 1,
        pad_token_id=None,
        dtype="float32",
    )
    values.update(overrides)
    return Qwen3_5MoeTextConfig(**values)


def build(config: Qwen3_5MoeTextConfig, seed: int) -> Qwen3_5MoeForCausalLM:
    torch.manual_seed(seed)
    model = Qwen3_5MoeForCausalLM(config).float()
    # Branch outputs start smaller, by the number of branches that add up.
    scale = (2 * config.num_hidden_layers) ** -0.5
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(("o_proj.weight", "out_proj.weight", "down_proj.weight", "experts.down_proj")):
                parameter.mul_(scale)
    return model


def layer_parameters(model: Qwen3_5MoeForCausalLM) -> list[dict[str, torch.Tensor]]:
    return [dict(layer.named_parameters()) for layer in model.model.layers]


# ---------------------------------------------------------------------------------------------- pieces


def rms(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    x = x.float()
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * (1.0 + weight)


def linear(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return F.linear(x, weight.to(x.dtype))


def l2norm(x: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6)


def unit_lower_inverse(lower: torch.Tensor) -> torch.Tensor:
    """(I + lower)^-1 for strictly lower triangular `lower` of size 16 or 16 times a power of two."""
    n = lower.shape[-1]
    if n <= 16:
        # lower^16 = 0, so the Neumann series ends and factors into four products.
        eye = torch.eye(n, dtype=lower.dtype, device=lower.device)
        power = lower @ lower
        inverse = (eye - lower) @ (eye + power)
        power = power @ power
        inverse = inverse @ (eye + power)
        power = power @ power
        return inverse @ (eye + power)
    half = n // 2
    a = unit_lower_inverse(lower[..., :half, :half])
    c = unit_lower_inverse(lower[..., half:, half:])
    b = -(c @ (lower[..., half:, :half] @ a))
    top = torch.cat([a, torch.zeros_like(a)], -1)
    return torch.cat([top, torch.cat([b, c], -1)], -2)


def delta_rule(q, k, v, g, beta, chunk: int) -> torch.Tensor:
    """q, k [B,T,heads,dk], v [B,T,heads,dv], g and beta [B,T,heads], all fp32.

    On a GPU the kernels of delta.py run; elsewhere the chunked form, for T a multiple of chunk.
    """
    if q.is_cuda and delta is not None:
        return delta.rule(l2norm(q) * q.shape[-1] ** -0.5, l2norm(k), v, g, beta, torch.is_grad_enabled())[0]
    batch, length, heads, dk = q.shape
    dv = v.shape[-1]
    n = length // chunk

    def cut(x):  # -> [B, heads, n, chunk, ...]
        return x.view(batch, n, chunk, heads, -1).permute(0, 3, 1, 2, 4)

    q, k, v = cut(l2norm(q) * dk**-0.5), cut(l2norm(k)), cut(v)
    beta, g = cut(beta), cut(g)
    total = g.cumsum(3)  # [B, heads, n, chunk, 1]
    causal = torch.ones(chunk, chunk, dtype=torch.bool, device=q.device).tril()
    decay = (total - total.transpose(-1, -2)).masked_fill(~causal, float("-inf")).exp()
    kt = k.transpose(-1, -2)
    inverse = unit_lower_inverse(((beta * k) @ kt * decay).tril(-1))
    u = inverse @ (beta * v)
    w = inverse @ (beta * total.exp() * k)
    attention = (q @ kt) * decay
    last = total[..., -1:, :]
    read = torch.cat([w, total.exp() * q], -2)  # both are multiplied by the state
    write = ((last - total).exp() * k).transpose(-1, -2)
    keep = last.exp()

    state = torch.zeros(batch, heads, dk, dv, dtype=q.dtype, device=q.device)
    fresh, old = [], []
    for i in range(n):
        both = read[:, :, i] @ state
        new = u[:, :, i] - both[:, :, :chunk]
        fresh.append(new)
        old.append(both[:, :, chunk:])
        state = keep[:, :, i] * state + write[:, :, i] @ new
    out = torch.stack(old, 2) + attention @ torch.stack(fresh, 2)
    return out.permute(0, 2, 3, 1, 4).reshape(batch, length, heads, dv)


def delta_net(x: torch.Tensor, p: dict, dims: dict) -> torch.Tensor:
    batch, length, _ = x.shape
    hk, hv, dk, dv = dims["hk"], dims["hv"], dims["dk"], dims["dv"]
    u = linear(x, p["linear_attn.in_proj_qkv.weight"]).float()
    taps = p["linear_attn.conv1d.weight"].squeeze(1)
    size = taps.shape[-1]
    padded = F.pad(u, (0, 0, size - 1, 0))
    mixed = sum(padded[:, j : j + length] * taps[:, j] for j in range(size))
    mixed = F.silu(mixed)
    q, k, v = mixed.split([hk * dk, hk * dk, hv * dv], -1)
    q = q.view(batch, length, hk, 1, dk).expand(-1, -1, -1, hv // hk, -1).reshape(batch, length, hv, dk)
    k = k.view(batch, length, hk, 1, dk).expand(-1, -1, -1, hv // hk, -1).reshape(batch, length, hv, dk)
    v = v.view(batch, length, hv, dv)
    beta = linear(x, p["linear_attn.in_proj_b.weight"]).float().sigmoid()
    rate = linear(x, p["linear_attn.in_proj_a.weight"]).float() + p["linear_attn.dt_bias"]
    g = -p["linear_attn.A_log"].exp() * F.softplus(rate)
    out = delta_rule(q, k, v, g, beta, dims["chunk"])
    out = p["linear_attn.norm.weight"] * (out * torch.rsqrt(out.pow(2).mean(-1, keepdim=True) + dims["eps"]))
    z = linear(x, p["linear_attn.in_proj_z.weight"]).view(batch, length, hv, dv)
    out = (out * F.silu(z.float())).reshape(batch, length, hv * dv).to(x.dtype)
    return linear(out, p["linear_attn.out_proj.weight"])


def attention(x: torch.Tensor, p: dict, dims: dict, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    batch, length, _ = x.shape
    heads, kv, d = dims["heads"], dims["kv"], dims["d"]
    q, gate = linear(x, p["self_attn.q_proj.weight"]).view(batch, length, heads, 2 * d).chunk(2, -1)
    k = linear(x, p["self_attn.k_proj.weight"]).view(batch, length, kv, d)
    v = linear(x, p["self_attn.v_proj.weight"]).view(batch, length, kv, d)

    def rope(y):
        half = cos.shape[-1]
        a, b, rest = y[..., :half], y[..., half : 2 * half], y[..., 2 * half :]
        c, s = cos[None, :, None], sin[None, :, None]
        return torch.cat([a * c - b * s, b * c + a * s, rest], -1).to(x.dtype).transpose(1, 2)

    q = rope(rms(q, p["self_attn.q_norm.weight"], dims["eps"]))
    k = rope(rms(k, p["self_attn.k_norm.weight"], dims["eps"]))
    out = F.scaled_dot_product_attention(q, k, v.transpose(1, 2), is_causal=True, enable_gqa=True)
    out = out.transpose(1, 2).reshape(batch, length, heads * d)
    out = out * torch.sigmoid(gate.reshape(batch, length, heads * d).float()).to(x.dtype)
    return linear(out, p["self_attn.o_proj.weight"])


def moe(x: torch.Tensor, normed: torch.Tensor, p: dict, dims: dict) -> tuple[torch.Tensor, torch.Tensor]:
    """x is `normed` (fp32) in the compute type. Returns the output and the load balancing loss."""
    experts, top, width = dims["experts"], dims["top"], dims["width"]
    probs = F.softmax(F.linear(normed, p["mlp.gate.weight"]), -1)
    left, cut = probs, None
    for _ in range(top):
        cut = left.amax(-1, keepdim=True)
        left = left.masked_fill(left >= cut, -1.0)
    chosen = left < 0
    weight = torch.where(chosen, probs, 0.0)
    weight = weight / weight.sum(-1, keepdim=True)
    balance = experts * (chosen.float().mean((0, 1)) * probs.mean((0, 1))).sum()

    gate_up = p["mlp.experts.gate_up_proj"]
    hidden = linear(x, gate_up.reshape(-1, gate_up.shape[-1])).view(*x.shape[:-1], experts, 2, width)
    act = F.silu(hidden[..., 0, :].float()) * hidden[..., 1, :] * weight.unsqueeze(-1)
    down = p["mlp.experts.down_proj"].permute(1, 0, 2).reshape(x.shape[-1], experts * width)
    out = linear(act.reshape(*x.shape[:-1], experts * width).to(x.dtype), down)

    shared = F.silu(linear(x, p["mlp.shared_expert.gate_proj.weight"])) * linear(
        x, p["mlp.shared_expert.up_proj.weight"]
    )
    shared = linear(shared, p["mlp.shared_expert.down_proj.weight"])
    gate = torch.sigmoid(F.linear(normed, p["mlp.shared_expert_gate.weight"]))
    return out + gate * shared, balance


def dropout(x: torch.Tensor, drop: torch.Tensor | None) -> torch.Tensor:
    """The rate is a tensor, so that compiled code serves every rate."""
    return x if drop is None else torch.where(torch.rand_like(x) < drop, 0.0, x / (1 - drop))


def layer(x, p: dict, dims: dict, cos, sin, full: bool, drop: torch.Tensor | None, kind: torch.dtype):
    """x fp32 [B,T,H]."""
    h = rms(x, p["input_layernorm.weight"], dims["eps"]).to(kind)
    h = attention(h, p, dims, cos, sin) if full else delta_net(h, p, dims)
    x = x + dropout(h.float(), drop)
    normed = rms(x, p["post_attention_layernorm.weight"], dims["eps"])
    h, balance = moe(normed.to(kind), normed, p, dims)
    return x + dropout(h.float(), drop), balance


def head(x, norm, embedding, targets, eps: float, kind: torch.dtype):
    """Loss of each target; one of -100 has loss 0."""
    logits = linear(rms(x, norm, eps).to(kind), embedding).float()
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-100, reduction="none")


def head_probabilities(x, norm, embedding, eps: float, kind: torch.dtype):
    return linear(rms(x, norm, eps).to(kind), embedding).float().softmax(-1)


def head_taught(x, norm, embedding, targets, taught, eps: float, kind: torch.dtype):
    """Mean cross entropy against the text, and against the probabilities `taught`."""
    logs = linear(rms(x, norm, eps).to(kind), embedding).float().log_softmax(-1)
    text = -logs.gather(-1, targets.unsqueeze(-1)).mean()
    return text, -(taught * logs).sum(-1).mean()


class Trainable:
    """transformers' parameters with the forward pass above."""

    def __init__(self, model: Qwen3_5MoeForCausalLM, kind: torch.dtype, compiled: bool, chunk: int = CHUNK):
        c = model.config
        self.model, self.kind, self.config = model, kind, c
        self.layers = layer_parameters(model)
        self.norm, self.embedding = model.model.norm.weight, model.model.embed_tokens.weight
        self.dims = dict(
            hk=c.linear_num_key_heads,
            hv=c.linear_num_value_heads,
            dk=c.linear_key_head_dim,
            dv=c.linear_value_head_dim,
            heads=c.num_attention_heads,
            kv=c.num_key_value_heads,
            d=c.head_dim,
            experts=c.num_experts,
            top=c.num_experts_per_tok,
            width=c.moe_intermediate_size,
            eps=c.rms_norm_eps,
            chunk=chunk,
        )
        wrap = (lambda f: torch.compile(f, fullgraph=True, dynamic=False)) if compiled else (lambda f: f)
        self.layer, self.head = wrap(layer), wrap(head)
        self.head_probabilities, self.head_taught = wrap(head_probabilities), wrap(head_taught)

    def rotations(self, length: int, device):
        rope = self.config.rope_parameters
        size = int(self.config.head_dim * rope["partial_rotary_factor"])
        steps = torch.arange(0, size, 2, dtype=torch.float32, device=device) / size
        angles = torch.arange(length, dtype=torch.float32, device=device)[:, None] / rope["rope_theta"] ** steps
        return angles.cos(), angles.sin()

    def trunk(self, tokens, drop: torch.Tensor | None):
        """The last hidden states, and the mean load balancing loss (top-k when balanced)."""
        cos, sin = self.rotations(tokens.shape[1], tokens.device)
        x = dropout(F.embedding(tokens, self.embedding), drop)
        balance = 0.0
        for kind, p in zip(self.config.layer_types, self.layers):
            x, b = self.layer(x, p, self.dims, cos, sin, kind == "full_attention", drop, self.kind)
            balance = balance + b
        return x, balance / len(self.layers)

    def losses(self, tokens, targets):
        """Loss of each target, without dropout."""
        x, balance = self.trunk(tokens, None)
        return self.head(x, self.norm, self.embedding, targets, self.config.rms_norm_eps, self.kind), balance

    def objective(self, tokens, targets, drop, teachers: list["Trainable"], share: float):
        """What is minimised (without the balancing loss), the balancing loss, and the text's loss."""
        x, balance = self.trunk(tokens, drop)
        tail = (self.config.rms_norm_eps, self.kind)
        if not teachers:
            text = self.head(x, self.norm, self.embedding, targets, *tail).mean()
            return text, balance, text
        with torch.no_grad():
            taught = 0.0
            for teacher in teachers:
                y, _ = teacher.trunk(tokens, None)
                taught = taught + teacher.head_probabilities(y, teacher.norm, teacher.embedding, *tail)
            taught = taught / len(teachers)
        text, lesson = self.head_taught(x, self.norm, self.embedding, targets, taught, *tail)
        return (1 - share) * text + share * lesson, balance, text


class Ensemble:
    """Several networks whose probabilities are averaged."""

    def __init__(self, nets: list[Trainable]):
        self.nets = nets

    def losses(self, tokens, targets):
        mean = 0.0
        for net in self.nets:
            x, _ = net.trunk(tokens, None)
            tail = (net.norm, net.embedding, net.config.rms_norm_eps, net.kind)
            mean = mean + net.head_probabilities(x, *tail) / len(self.nets)
        kept = targets.clamp(min=0).unsqueeze(-1)
        losses = -mean.gather(-1, kept).squeeze(-1).log()
        return losses.masked_fill(targets < 0, 0.0).flatten(), None


def self_test(model: Qwen3_5MoeForCausalLM, kind=torch.float32, compiled: bool = False, length: int = 96) -> float:
    """Largest difference of a per-token loss between transformers' forward pass and this one."""
    device = model.model.embed_tokens.weight.device
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(0, model.config.vocab_size, (2, length + 1), generator=generator).to(device)
    with torch.no_grad():
        mine, _ = Trainable(model, kind, compiled).losses(tokens[:, :-1], tokens[:, 1:])
        logits = model(input_ids=tokens[:, :-1]).logits.float()
        theirs = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(), reduction="none")
    return (mine - theirs).abs().max().item()
