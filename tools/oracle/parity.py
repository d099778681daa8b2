"""What layer_parity.py and model_parity.py share: the dump of a run, the
checkpoint's tensors, and transformers' decoder layers in fp32."""

import json
import pathlib

import numpy as np
import safetensors
import torch
from transformers.models.qwen3_5_moe import configuration_qwen3_5_moe
from transformers.models.qwen3_5_moe import modeling_qwen3_5_moe as modeling


class Dump:
  """What tests/tools/dump_layers.cpp wrote."""

  def __init__(self, folder):
    folder = pathlib.Path(folder)
    self.index = json.loads((folder / "index.json").read_text("utf-8"))
    self.data = np.memmap(folder / "data.bin", dtype=np.uint8, mode="r")
    self.prompt = json.loads((folder / "prompt.json").read_text("utf-8"))

  def rows(self, what, layer=None):
    """All positions in order, [positions, width]; None if not dumped."""
    parts = {}
    for entry in self.index:
      if entry["what"] != what or layer not in (None, entry["layer"]):
        continue
      kind = np.int32 if entry["dtype"] == "i32" else np.float32
      size = 4 * entry["rows"] * entry["width"]
      raw = self.data[entry["offset"]:entry["offset"] + size]
      parts[entry["position"]] = raw.view(kind).reshape(
          entry["rows"], entry["width"])
    if not parts:
      return None
    return np.concatenate([parts[p] for p in sorted(parts)])

  def drawn(self):
    """The token drawn at each position, those of the prompt too."""
    return [int(t) for t in self.rows("token").reshape(-1)]

  def fed(self):
    """The token fed at each position: the prompt, then what was drawn."""
    drawn = self.drawn()
    first = len(self.prompt)
    return list(self.prompt) + drawn[first - 1:len(drawn) - 1]


class Weights:
  """Tensors of a checkpoint's language model, read when asked for."""

  def __init__(self, folder):
    self.folder = pathlib.Path(folder)
    index = self.folder / "model.safetensors.index.json"
    if index.exists():
      files = json.loads(index.read_text("utf-8"))["weight_map"]
    else:
      with safetensors.safe_open(
          self.folder / "model.safetensors", "pt") as file:
        files = {name: "model.safetensors" for name in file.keys()}
    self.files = {name: file for name, file in files.items()
                  if "visual" not in name and not name.startswith("mtp")}

  def layer(self, number, device):
    """The tensors of a layer by their names in it, fp32 on `device`."""
    mark = f"layers.{number}."
    by_file = {}
    for name, file in self.files.items():
      if mark in name:
        by_file.setdefault(file, []).append(name)
    found = {}
    for file, names in by_file.items():
      with safetensors.safe_open(self.folder / file, "pt") as shard:
        for name in names:
          short = name[name.index(mark) + len(mark):]
          # Widened where it is used: half as much to move.
          found[short] = shard.get_tensor(name).to(device).float()
    return found

  def tensor(self, ending):
    """The tensor whose name ends so, as it is stored; None if there is none."""
    name = next((n for n in self.files if n.endswith(ending)), None)
    if name is None:
      return None
    with safetensors.safe_open(self.folder / self.files[name], "pt") as shard:
      return shard.get_tensor(name)

  def embedded(self, ids):
    return self.tensor("embed_tokens.weight")[torch.tensor(ids)].float()


def read_config(folder):
  top = json.loads((pathlib.Path(folder) / "config.json").read_text("utf-8"))
  config = configuration_qwen3_5_moe.Qwen3_5MoeTextConfig(
      **top.get("text_config", top))
  config._attn_implementation = "eager"
  config._experts_implementation = "eager"
  return config


def use_fp32():
  torch.backends.cuda.matmul.allow_tf32 = False
  torch.backends.cudnn.allow_tf32 = False


def decoder_layer(number, weights, config, device):
  """transformers' layer with the checkpoint's weights in fp32."""
  with torch.device("meta"):  # the weights are assigned, not copied
    layer = modeling.Qwen3_5MoeDecoderLayer(config, number)
  layer.load_state_dict(weights.layer(number, device), strict=True, assign=True)
  return layer.eval()


def run_layer(layer, number, config, x):
  """Its output for all positions at once; x and the output are [T, H]."""
  count = x.shape[0]
  positions = torch.arange(count, device=x.device)
  rotary = modeling.Qwen3_5MoeTextRotaryEmbedding(config).to(x.device)
  embeddings = rotary(x[None], positions.view(1, 1, -1).expand(3, 1, -1))
  mask = None
  if config.layer_types[number] == "full_attention":
    mask = torch.full((count, count), float("-inf"), device=x.device).triu(1)
    mask = mask[None, None]
  with torch.no_grad():
    return layer(x[None], position_embeddings=embeddings, attention_mask=mask,
                 position_ids=positions[None])[0]
