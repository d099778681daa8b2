"""Writes the golden file of one checkpoint. README.md describes the format.

  golden.py MODEL_DIR OUT.safetensors [--prompt-ids ID... | --prompt-seed N |
            --prompt-text TEXT] [--positions 64] [--tokens 64]
            [--logit-positions all|N] [--residual-positions all|N]

transformers' own modules run in fp32 on the CPU: the prompt in one forward,
then greedy tokens one by one with the cache. reference.py repeats the run in
fp64, fed the same tokens and the same experts, and transformers' error against
it goes into the metadata.
"""

import argparse
import json
import pathlib
import struct

import numpy as np
import tokenizers
import torch
import transformers
from transformers.models.qwen3_5 import configuration_qwen3_5
from transformers.models.qwen3_5 import modeling_qwen3_5
from transformers.models.qwen3_5_moe import configuration_qwen3_5_moe
from transformers.models.qwen3_5_moe import modeling_qwen3_5_moe

import checkpoint as checkpoint_lib
import reference as reference_lib

FORMAT = "signet-golden-1"


def build_model(checkpoint):
  """transformers' text-only class with the checkpoint's weights in fp32."""
  if checkpoint.is_moe:
    config_class = configuration_qwen3_5_moe.Qwen3_5MoeTextConfig
    model_class = modeling_qwen3_5_moe.Qwen3_5MoeForCausalLM
  else:
    config_class = configuration_qwen3_5.Qwen3_5TextConfig
    model_class = modeling_qwen3_5.Qwen3_5ForCausalLM
  config = config_class(**checkpoint.config)
  config._attn_implementation = "eager"
  config._experts_implementation = "eager"
  model = model_class(config).float().eval()
  assert model.config._attn_implementation == "eager"
  state = {
      name if name == "lm_head.weight" else f"model.{name}": tensor.float()
      for name, tensor in checkpoint.tensors.items()}
  if checkpoint.is_tied:
    state["lm_head.weight"] = state["model.embed_tokens.weight"]
  model.load_state_dict(state, strict=True)
  return model


class Recorder:
  """Collects residuals and router outputs of every layer by hooks."""

  def __init__(self, model):
    count = len(model.model.layers)
    self.residual = [[] for _ in range(count)]
    self.router_logits = [[] for _ in range(count)]
    self.router_ids = [[] for _ in range(count)]
    for i, layer in enumerate(model.model.layers):
      layer.register_forward_hook(self._layer_hook(i))
      if hasattr(layer.mlp, "gate"):
        layer.mlp.gate.register_forward_hook(self._router_hook(i))

  def _layer_hook(self, i):
    def hook(module, args, out):
      self.residual[i].extend(out[0].numpy().copy())
    return hook

  def _router_hook(self, i):
    def hook(module, args, out):
      logits, _, ids = out
      self.router_logits[i].extend(logits.numpy().copy())
      self.router_ids[i].extend(ids.numpy().copy())
    return hook


def count_delta_rules():
  """Wraps the two torch delta rules so that the one in use is known."""
  counts = {"chunk": 0, "recurrent": 0}
  for module in (modeling_qwen3_5_moe, modeling_qwen3_5):
    for kind in counts:
      name = f"torch_{kind}_gated_delta_rule"
      inner = getattr(module, name)

      def wrapped(*args, inner=inner, kind=kind, **kwargs):
        counts[kind] += 1
        return inner(*args, **kwargs)

      setattr(module, name, wrapped)
  return counts


@torch.no_grad()
def run_transformers(model, prompt, token_count):
  """Returns logits [P, V], the greedy tokens, the cache and the recorder."""
  recorder = Recorder(model)
  cache = transformers.DynamicCache(config=model.config)
  logits, tokens = [], []
  ids = torch.tensor([prompt])
  while True:
    hidden = model.model(
        input_ids=ids, past_key_values=cache, use_cache=True)
    rows = model.lm_head(hidden.last_hidden_state)[0].numpy()
    logits.extend(rows.copy())
    tokens.append(int(np.argmax(rows[-1])))
    if len(tokens) == token_count:
      return np.stack(logits), tokens, cache, recorder
    ids = torch.tensor([[tokens[-1]]])


def final_states(cache, layer_types):
  """recurrent.L, conv.L, k.L, v.L as they are after the last position."""
  states = {}
  for i, kind in enumerate(layer_types):
    layer = cache.layers[i]
    if kind == "linear_attention":
      states[f"recurrent.{i}"] = layer.recurrent_states[0][0].numpy()
      states[f"conv.{i}"] = layer.conv_states[0][0, :, 1:].numpy()
    else:
      states[f"k.{i}"] = layer.keys[0].transpose(0, 1).numpy()
      states[f"v.{i}"] = layer.values[0].transpose(0, 1).numpy()
  return states


def run_reference(checkpoint, fed, routes):
  """The same run in fp64. Returns a dict of arrays named as in the file."""
  reference = reference_lib.Reference(checkpoint)
  steps = [
      reference.step(token, [layer[p] for layer in routes] if routes else None)
      for p, token in enumerate(fed)]
  result = {"logits": np.stack([s["logits"] for s in steps])}
  for i, kind in enumerate(reference.layer_types):
    result[f"residual.{i}"] = np.stack([s["residual"][i] for s in steps])
    if checkpoint.is_moe:
      result[f"router.{i}"] = np.stack([s["router_logits"][i] for s in steps])
    if kind == "linear_attention":
      result[f"recurrent.{i}"] = reference.recurrent[i]
      result[f"conv.{i}"] = reference.conv[i]
    else:
      result[f"k.{i}"] = np.stack(reference.keys[i])
      result[f"v.{i}"] = np.stack(reference.values[i])
  return result, reference


def error_of(name, got, want):
  """transformers' error in the measure of the acceptance rule."""
  got = got.astype(np.float64)
  difference = np.abs(got - want)
  kind = name.split(".")[0]
  if kind in ("logits", "router"):
    return difference.max()
  if kind == "residual":  # worst position, relative L2
    return (np.linalg.norm(got - want, axis=1) /
            np.linalg.norm(want, axis=1)).max()
  if kind == "conv":  # the tensor has no heads
    return difference.max() / np.abs(want).max()
  axes = (1, 2) if kind == "recurrent" else (0, 2)  # k, v: [T, heads, d]
  return (difference.max(axis=axes) / np.abs(want).max(axis=axes)).max()


def router_margins(scores, count):
  """fp64 gaps: K-th minus next; least between neighbours among the first K."""
  ordered = -np.sort(-scores, axis=1)
  gaps = ordered[:, :-1] - ordered[:, 1:]
  infinite = np.full(len(scores), np.inf)
  boundary = gaps[:, count - 1] if gaps.shape[1] >= count else infinite
  order = gaps[:, :count - 1].min(axis=1) if count > 1 else infinite
  return boundary.astype(np.float32), order.astype(np.float32)


def spread(total, wanted):
  """`wanted` positions of 0..total-1, evenly spread from first to last."""
  if wanted == "all" or int(wanted) >= total:
    return np.arange(total, dtype=np.int32)
  count = int(wanted)
  return np.array(
      [i * (total - 1) // max(count - 1, 1) for i in range(count)],
      dtype=np.int32)


def seeded_prompt(seed, length, vocabulary):
  """splitmix64 modulo the vocabulary."""
  mask, ids = (1 << 64) - 1, []
  for _ in range(length):
    seed = (seed + 0x9E3779B97F4A7C15) & mask
    x = seed
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
    ids.append((x ^ (x >> 31)) % vocabulary)
  return ids


def write_safetensors(path, tensors, metadata):
  """Same input, same bytes: names and keys sorted, header padded to 8."""
  codes = {np.dtype(np.float32): "F32", np.dtype(np.int32): "I32"}
  header, offset = {"__metadata__": dict(sorted(metadata.items()))}, 0
  for name, array in sorted(tensors.items()):
    header[name] = {
        "dtype": codes[array.dtype], "shape": list(array.shape),
        "data_offsets": [offset, offset + array.nbytes]}
    offset += array.nbytes
  text = json.dumps(header, separators=(",", ":")).encode()
  text += b" " * (-len(text) % 8)
  with open(path, "wb") as file:
    file.write(struct.pack("<Q", len(text)) + text)
    for _, array in sorted(tensors.items()):
      file.write(np.ascontiguousarray(array).tobytes())


def pick_prompt(arguments, config):
  if arguments.prompt_ids:
    return arguments.prompt_ids, "ids"
  if arguments.prompt_text:
    tokenizer = tokenizers.Tokenizer.from_file(
        str(pathlib.Path(arguments.model) / "tokenizer.json"))
    ids = tokenizer.encode(
        arguments.prompt_text, add_special_tokens=False).ids
    if len(ids) < arguments.positions:
      raise ValueError(f"the prompt text has only {len(ids)} tokens")
    return ids[:arguments.positions], "text"
  seed = arguments.prompt_seed
  return seeded_prompt(
      seed, arguments.positions, config["vocab_size"]), f"seed {seed}"


def make_golden(arguments):
  torch.set_num_threads(1)
  torch.set_float32_matmul_precision("highest")
  torch.backends.mkldnn.enabled = False
  checkpoint = checkpoint_lib.Checkpoint(arguments.model)
  prompt, source = pick_prompt(arguments, checkpoint.config)
  rules = count_delta_rules()
  model = build_model(checkpoint)
  logits, tokens, cache, recorder = run_transformers(
      model, prompt, arguments.tokens)
  fed = prompt + tokens[:-1]
  ours = final_states(cache, model.config.layer_types)
  for i, rows in enumerate(recorder.residual):
    ours[f"residual.{i}"] = np.stack(rows)
    assert len(rows) == len(fed)
  for i, rows in enumerate(recorder.router_logits):
    if rows:
      ours[f"router.{i}"] = np.stack(rows)
  ours["logits"] = logits
  routes = [np.stack(r) for r in recorder.router_ids] if (
      checkpoint.is_moe) else None
  truth, reference = run_reference(checkpoint, fed, routes)
  assert truth.keys() == ours.keys()

  metadata = {
      "format": FORMAT,
      "model_type": checkpoint.model_type,
      "config": json.dumps(checkpoint.config, sort_keys=True),
      "prompt_source": source,
      "torch": torch.__version__.split("+")[0],
      "transformers": transformers.__version__,
      "delta_rule_calls": json.dumps(rules, sort_keys=True),
  }
  files, digest = checkpoint.digests()
  metadata["checkpoint_sha256"] = digest
  for name, value in files.items():
    metadata[f"sha256.{name}"] = value
  worst = {}
  for name in truth:
    error = error_of(name, ours[name], truth[name])
    metadata[f"error.{name}"] = f"{error:.6e}"
    kind = name.split(".")[0]
    worst[kind] = max(worst.get(kind, 0.0), error)
  for kind, error in worst.items():
    metadata[f"error.{kind}"] = f"{error:.6e}"

  tensors = {name: ours[name] for name in ours
             if name.split(".")[0] in ("recurrent", "conv", "k", "v")}
  rows = spread(len(fed), arguments.residual_positions)
  tensors["residual_positions"] = rows
  for i in range(reference.layers):
    tensors[f"residual.{i}"] = ours[f"residual.{i}"][rows]
  other_sets = other_orders = 0
  count = checkpoint.config.get("num_experts_per_tok")
  for i in range(reference.layers if checkpoint.is_moe else 0):
    scores = truth[f"router.{i}"]
    tensors[f"router_ids.{i}"] = routes[i].astype(np.int32)
    (tensors[f"router_margin.{i}"],
     tensors[f"router_order_margin.{i}"]) = router_margins(scores, count)
    for theirs, row in zip(routes[i], scores):
      exact = reference_lib.selection(row, count)
      other_sets += set(exact) != set(theirs)
      other_orders += list(exact) != list(theirs)
  if checkpoint.is_moe:
    metadata["router_rows_with_other_set"] = str(other_sets)
    metadata["router_rows_with_other_order"] = str(other_orders)
  rows = spread(len(fed), arguments.logit_positions)
  tensors["logit_positions"] = rows
  tensors["logits"] = logits[rows]
  tensors["prompt_ids"] = np.array(prompt, dtype=np.int32)
  tensors["tokens"] = np.array(tokens, dtype=np.int32)
  exact = -np.sort(-truth["logits"][len(prompt) - 1:], axis=1)
  tensors["token_margin"] = (exact[:, 0] - exact[:, 1]).astype(np.float32)
  metadata["tokens_with_other_argmax"] = str(int(np.sum(
      truth["logits"][len(prompt) - 1:].argmax(axis=1) != tokens)))
  theirs = model.model.rotary_emb.inv_freq.numpy()
  tensors["inverse_frequency"] = theirs
  metadata["inverse_frequency_worst_relative"] = "%.3e" % np.abs(
      theirs.astype(np.float64) / reference.inverse_frequency - 1).max()
  write_safetensors(arguments.out, tensors, metadata)
  return metadata, worst


def main():
  parser = argparse.ArgumentParser()
  parser.add_argument("model")
  parser.add_argument("out")
  prompt = parser.add_mutually_exclusive_group()
  prompt.add_argument("--prompt-ids", type=int, nargs="+")
  prompt.add_argument("--prompt-seed", type=int, default=1)
  prompt.add_argument("--prompt-text")
  parser.add_argument("--positions", type=int, default=64)
  parser.add_argument("--tokens", type=int, default=64)
  parser.add_argument("--logit-positions", default="all")
  parser.add_argument("--residual-positions", default="all")
  arguments = parser.parse_args()
  metadata, worst = make_golden(arguments)
  size = pathlib.Path(arguments.out).stat().st_size
  print(f"{arguments.out}: {size} bytes")
  for key in ("delta_rule_calls", "router_rows_with_other_set",
              "router_rows_with_other_order", "tokens_with_other_argmax",
              "inverse_frequency_worst_relative"):
    print(f"  {key}: {metadata.get(key)}")
  for kind, error in sorted(worst.items()):
    print(f"  error.{kind}: {error:.3e}")


if __name__ == "__main__":
  main()
