"""A plain fp64 implementation of Qwen3.5 MoE and dense, token by token.

It shares no code with transformers and uses the recurrent form of the gated
delta rule throughout. One thing is kept in fp32 on purpose: the rope angle,
which the model defines as an fp32 product of position and inverse frequency.
"""

import numpy as np


def sigmoid(x):
  # The two branches keep exp() from overflowing.
  small = np.exp(-np.abs(x))
  return np.where(x >= 0, 1.0 / (1.0 + small), small / (1.0 + small))


def silu(x):
  return x * sigmoid(x)


def softplus(x):
  # torch returns x itself above its threshold of 20.
  return np.where(x > 20.0, x, np.log1p(np.exp(np.minimum(x, 20.0))))


def rms_normalize(x, epsilon):
  return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + epsilon)


def l2_normalize(x):
  return x / np.sqrt(np.sum(x * x, axis=-1, keepdims=True) + 1e-6)


def selection(scores, count):
  """Ids of the `count` largest scores, ties to the lower id."""
  return np.argsort(-scores, kind="stable")[:count]


class Reference:
  """Keeps the state of one sequence; step() consumes one token."""

  def __init__(self, checkpoint):
    self.config = checkpoint.config
    self.is_moe = checkpoint.is_moe
    self.weights = {
        name: tensor.double().numpy()
        for name, tensor in checkpoint.tensors.items()}
    config = self.config
    self.epsilon = config["rms_norm_eps"]
    self.layers = config["num_hidden_layers"]
    interval = config.get("full_attention_interval") or 4
    self.layer_types = config.get("layer_types") or [
        "linear_attention" if (i + 1) % interval else "full_attention"
        for i in range(self.layers)]
    rope = config.get("rope_parameters") or config
    self.head_dim = config.get("head_dim") or 256
    factor = rope.get("partial_rotary_factor",
                      config.get("partial_rotary_factor", 0.25))
    rotary = int(self.head_dim * factor)
    exponent = np.arange(0, rotary, 2, dtype=np.float32) / np.float32(rotary)
    power = np.power(np.float64(rope["rope_theta"]),
                     exponent.astype(np.float64)).astype(np.float32)
    self.inverse_frequency = np.float32(1.0) / power
    self.recurrent, self.conv, self.keys, self.values = {}, {}, {}, {}
    self.position = 0

  def weight(self, layer, name):
    return self.weights[f"layers.{layer}.{name}"]

  def rms_norm(self, x, weight):
    """Zero-centred weight: the scale is 1 + weight."""
    return rms_normalize(x, self.epsilon) * (1.0 + weight)

  def step(self, token, routes=None):
    """One token. `routes` [layer] -> ids forces the experts of a layer.

    Returns a dict: logits [V], residual [L][H], router_logits [L][E].
    """
    hidden = self.weights["embed_tokens.weight"][token]
    residual, router_logits = [], []
    for layer in range(self.layers):
      x = self.rms_norm(hidden, self.weight(layer, "input_layernorm.weight"))
      if self.layer_types[layer] == "full_attention":
        hidden = hidden + self.attention(layer, x)
      else:
        hidden = hidden + self.delta_net(layer, x)
      x = self.rms_norm(
          hidden, self.weight(layer, "post_attention_layernorm.weight"))
      if self.is_moe:
        y, scores = self.moe(layer, x, routes[layer] if routes else None)
        router_logits.append(scores)
      else:
        y = self.mlp(x, f"layers.{layer}.mlp.")
      hidden = hidden + y
      residual.append(hidden)
    self.position += 1
    head = self.weights.get("lm_head.weight")
    if head is None or self.config.get("tie_word_embeddings"):
      head = self.weights["embed_tokens.weight"]
    logits = head @ self.rms_norm(hidden, self.weights["norm.weight"])
    return {"logits": logits, "residual": residual,
            "router_logits": router_logits}

  def rope(self, x):
    """x [heads, head_dim]; pairs (i, i + half) of the rotated dims."""
    angle = np.float32(self.position) * self.inverse_frequency
    assert angle.dtype == np.float32
    cos, sin = np.cos(angle.astype(np.float64)), np.sin(
        angle.astype(np.float64))
    half = len(angle)
    low, high = x[:, :half], x[:, half:2 * half]
    return np.concatenate(
        [low * cos - high * sin, high * cos + low * sin, x[:, 2 * half:]],
        axis=1)

  def attention(self, layer, x):
    config, d = self.config, self.head_dim
    heads = config["num_attention_heads"]
    kv_heads = config["num_key_value_heads"]
    weight = lambda name: self.weight(layer, f"self_attn.{name}.weight")
    both = (weight("q_proj") @ x).reshape(heads, 2, d)  # per head: q, gate
    q, gate = both[:, 0], both[:, 1]
    k = (weight("k_proj") @ x).reshape(kv_heads, d)
    v = (weight("v_proj") @ x).reshape(kv_heads, d)
    q = self.rope(self.rms_norm(q, weight("q_norm")))
    k = self.rope(self.rms_norm(k, weight("k_norm")))
    self.keys.setdefault(layer, []).append(k)
    self.values.setdefault(layer, []).append(v)
    keys = np.stack(self.keys[layer])  # [T, kv_heads, d]
    values = np.stack(self.values[layer])
    out = np.empty((heads, d))
    for h in range(heads):
      group = h // (heads // kv_heads)
      score = keys[:, group] @ q[h] * d ** -0.5
      probability = np.exp(score - score.max())
      probability /= probability.sum()
      out[h] = probability @ values[:, group]
    return weight("o_proj") @ (out * sigmoid(gate)).reshape(-1)

  def delta_net(self, layer, x):
    config = self.config
    key_heads = config["linear_num_key_heads"]
    value_heads = config["linear_num_value_heads"]
    dk = config["linear_key_head_dim"]
    dv = config["linear_value_head_dim"]
    weight = lambda name: self.weight(layer, f"linear_attn.{name}")
    u = weight("in_proj_qkv.weight") @ x
    z = (weight("in_proj_z.weight") @ x).reshape(value_heads, dv)
    beta = sigmoid(weight("in_proj_b.weight") @ x)
    g = -np.exp(weight("A_log")) * softplus(
        weight("in_proj_a.weight") @ x + weight("dt_bias"))

    taps = weight("conv1d.weight")[:, 0]  # [C, width]; last: this token
    past = self.conv.get(layer, np.zeros((len(u), taps.shape[1] - 1)))
    window = np.concatenate([past, u[:, None]], axis=1)
    self.conv[layer] = window[:, 1:]
    c = silu(np.sum(taps * window, axis=1))

    key_dim = key_heads * dk
    q = l2_normalize(c[:key_dim].reshape(key_heads, dk)) * dk ** -0.5
    k = l2_normalize(c[key_dim:2 * key_dim].reshape(key_heads, dk))
    v = c[2 * key_dim:].reshape(value_heads, dv)

    state = self.recurrent.get(layer, np.zeros((value_heads, dk, dv)))
    new_state, out = np.empty_like(state), np.empty((value_heads, dv))
    for h in range(value_heads):
      kh = h // (value_heads // key_heads)
      s = np.exp(g[h]) * state[h]
      delta = beta[h] * (v[h] - s.T @ k[kh])
      s = s + np.outer(k[kh], delta)
      new_state[h], out[h] = s, s.T @ q[kh]
    self.recurrent[layer] = new_state
    out = weight("norm.weight") * rms_normalize(out, self.epsilon) * silu(z)
    return weight("out_proj.weight") @ out.reshape(-1)

  def mlp(self, x, prefix):
    gate = self.weights[prefix + "gate_proj.weight"] @ x
    up = self.weights[prefix + "up_proj.weight"] @ x
    return self.weights[prefix + "down_proj.weight"] @ (silu(gate) * up)

  def moe(self, layer, x, forced):
    scores = self.weight(layer, "mlp.gate.weight") @ x
    ids = forced
    if ids is None:
      ids = selection(scores, self.config["num_experts_per_tok"])
    weights = np.exp(scores[ids] - scores.max())
    weights /= weights.sum()
    gate_up = self.weight(layer, "mlp.experts.gate_up_proj")
    down = self.weight(layer, "mlp.experts.down_proj")
    width = down.shape[2]
    y = np.zeros_like(x)
    for weight, e in zip(weights, ids):
      both = gate_up[e] @ x  # gate rows, then up rows
      y += weight * (down[e] @ (silu(both[:width]) * both[width:]))
    shared = self.mlp(x, f"layers.{layer}.mlp.shared_expert.")
    gate = self.weight(layer, "mlp.shared_expert_gate.weight")[0] @ x
    return y + sigmoid(gate) * shared, scores
