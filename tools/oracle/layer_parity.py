"""Compares single layers of a run with transformers' own modules.

  layer_parity.py MODEL_DIR DUMP_DIR [--device cuda] [--prefill-bound 5e-3]
                  [--decode-bound 1e-4]

DUMP_DIR is what tests/tools/dump_layers.cpp wrote. For each layer whose input
and output residuals are there, transformers' decoder layer with the checkpoint's
weights in fp32 (tf32 off) is fed the dumped input of all positions at once and
its output compared with the dumped one: ||difference|| / ||output|| per
position, the largest of the prompt's positions (prefill) and of the rest
(decode). Router ids must be equal where the margin of transformers' scores
exceeds twice the largest score difference; positions that other experts answer
within it are counted and left out. Exit status 1: over a bound.
"""

import argparse
import json
import pathlib
import sys

import numpy as np
import safetensors
import torch
from transformers.models.qwen3_5_moe import configuration_qwen3_5_moe
from transformers.models.qwen3_5_moe import modeling_qwen3_5_moe as modeling


class Dump:

  def __init__(self, folder):
    folder = pathlib.Path(folder)
    self.index = json.loads((folder / "index.json").read_text("utf-8"))
    self.data = np.memmap(folder / "data.bin", dtype=np.uint8, mode="r")
    self.prompt = json.loads((folder / "prompt.json").read_text("utf-8"))

  def rows(self, what, layer):
    """All positions in order, [positions, width]; None if not dumped."""
    parts = {}
    for entry in self.index:
      if entry["what"] != what or entry["layer"] != layer:
        continue
      kind = np.int32 if entry["dtype"] == "i32" else np.float32
      size = 4 * entry["rows"] * entry["width"]
      raw = self.data[entry["offset"]:entry["offset"] + size]
      parts[entry["position"]] = raw.view(kind).reshape(
          entry["rows"], entry["width"])
    if not parts:
      return None
    return np.concatenate([parts[p] for p in sorted(parts)])


class Weights:
  """Tensors of single layers, read when asked for."""

  def __init__(self, folder):
    self.folder = pathlib.Path(folder)
    index = self.folder / "model.safetensors.index.json"
    if index.exists():
      self.files = json.loads(index.read_text("utf-8"))["weight_map"]
    else:
      with safetensors.safe_open(
          self.folder / "model.safetensors", "pt") as file:
        self.files = {name: "model.safetensors" for name in file.keys()}

  def layer(self, number, device):
    found = {}
    mark = f"layers.{number}."
    for name, file in self.files.items():
      if mark not in name or "visual" in name or name.startswith("mtp"):
        continue
      with safetensors.safe_open(self.folder / file, "pt") as shard:
        short = name[name.index(mark) + len(mark):]
        found[short] = shard.get_tensor(name).to(device).float()
    return found


def compare_layer(number, dump, weights, config, device):
  inputs = dump.rows("residual", number - 1)
  outputs = dump.rows("residual", number)
  if number == 0:
    inputs = embedded(dump, weights, device)
  layer = modeling.Qwen3_5MoeDecoderLayer(config, number).to(device).float()
  state = weights.layer(number, device)
  layer.load_state_dict(state, strict=True)
  layer.eval()
  x = torch.tensor(np.array(inputs), device=device)[None]
  count = x.shape[1]
  positions = torch.arange(count, device=device)
  rotary = modeling.Qwen3_5MoeTextRotaryEmbedding(config).to(device)
  embeddings = rotary(x, positions.view(1, 1, -1).expand(3, 1, -1))
  mask = None
  if config.layer_types[number] == "full_attention":
    mask = torch.full((count, count), float("-inf"), device=device).triu(1)
    mask = mask[None, None]
  scores = []
  layer.mlp.gate.register_forward_hook(
      lambda module, args, out: scores.append(
          torch.nn.functional.linear(args[0], module.weight)))
  with torch.no_grad():
    want = layer(x, position_embeddings=embeddings, attention_mask=mask,
                 position_ids=positions[None])[0]
  got = torch.tensor(np.array(outputs), device=device)
  error = (got - want).norm(dim=1) / want.norm(dim=1)
  change = (got - want).norm(dim=1) / (want - x[0]).norm(dim=1)
  ids = dump.rows("router ids", number)
  wrong, close = check_ids(ids, dump.rows("router scores", number),
                           scores[0].reshape(count, -1).cpu().numpy())
  error[close], change[close] = 0, 0
  return error.cpu().numpy(), change.cpu().numpy(), wrong, len(close)


def check_ids(ids, got_scores, scores):
  """Expert sets that differ: how many beyond their margin, which within it."""
  wrong, close = 0, []
  k = ids.shape[1]
  for position in range(len(ids)):
    order = np.argsort(-scores[position], kind="stable")
    if set(order[:k]) == set(ids[position]):
      continue
    margin = scores[position][order[k - 1]] - scores[position][order[k]]
    bound = 2 * np.abs(got_scores[position] - scores[position]).max()
    if margin > bound:
      wrong += 1
    else:
      close.append(position)
  return wrong, close


def embedded(dump, weights, device):
  name = next(n for n in weights.files if n.endswith("embed_tokens.weight"))
  with safetensors.safe_open(
      weights.folder / weights.files[name], "pt") as shard:
    table = shard.get_tensor(name)
  tokens = dump.rows("token", max(e["layer"] for e in dump.index))
  fed = list(dump.prompt)
  drawn = [int(t) for t in tokens.reshape(-1)]
  fed += drawn[len(dump.prompt) - 1:][:len(drawn) - len(dump.prompt)]
  return table[torch.tensor(fed)].float().numpy()


def main():
  parser = argparse.ArgumentParser()
  parser.add_argument("model")
  parser.add_argument("dump")
  parser.add_argument("--device", default="cuda")
  parser.add_argument("--prefill-bound", type=float, default=5e-3)
  parser.add_argument("--decode-bound", type=float, default=1e-4)
  args = parser.parse_args()
  torch.backends.cuda.matmul.allow_tf32 = False
  torch.backends.cudnn.allow_tf32 = False
  dump = Dump(args.dump)
  weights = Weights(args.model)
  top = json.loads(
      (pathlib.Path(args.model) / "config.json").read_text("utf-8"))
  config = configuration_qwen3_5_moe.Qwen3_5MoeTextConfig(
      **top.get("text_config", top))
  config._attn_implementation = "eager"
  config._experts_implementation = "eager"
  there = {e["layer"] for e in dump.index if e["what"] == "residual"}
  failed = False
  for number in sorted(there):
    if number - 1 not in there and number != 0:
      continue
    error, change, wrong, close = compare_layer(
        number, dump, weights, config, args.device)
    prompt = len(dump.prompt)
    prefill, decode = error[:prompt].max(), error[prompt:].max()
    over = (prefill > args.prefill_bound or decode > args.decode_bound
            or wrong > 0)
    failed = failed or over
    print(f"layer {number} {config.layer_types[number]}: prefill "
          f"{prefill:.2e} (of the change {change[:prompt].max():.2e}), decode "
          f"{decode:.2e} (of the change {change[prompt:].max():.2e}), router "
          f"sets wrong {wrong}, within margin {close}"
          f"{'  OVER' if over else ''}", flush=True)
  return 1 if failed else 0


if __name__ == "__main__":
  sys.exit(main())
