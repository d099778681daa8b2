"""Reads a Hugging Face qwen3_5_moe or qwen3_5 checkpoint for the oracle.

Only the language model is read; vision and MTP tensors are skipped by name,
any other unknown prefix is an error. Experts come out in the fused form.
"""

import hashlib
import json
import pathlib
import re

import safetensors
import torch

PREFIXES = ("model.language_model.", "language_model.model.", "model.")
SKIPPED = ("model.visual.", "visual.", "mtp.")
EXPERT = re.compile(
    r"(layers\.\d+\.mlp\.experts)\.(\d+)\.(gate|up|down)_proj\.weight")


class Checkpoint:
  """The text configuration (a dict) and the tensors, without prefix."""

  def __init__(self, folder):
    self.folder = pathlib.Path(folder)
    top = json.loads((self.folder / "config.json").read_text("utf-8"))
    self.config = dict(top.get("text_config", top))
    if "tie_word_embeddings" in top:
      self.config["tie_word_embeddings"] = top["tie_word_embeddings"]
    self.model_type = self.config.get("model_type", top["model_type"])
    if self.model_type not in (
        "qwen3_5_moe", "qwen3_5_moe_text", "qwen3_5", "qwen3_5_text"):
      raise ValueError(f"unsupported model_type {self.model_type}")
    self.is_moe = "moe" in self.model_type
    self.is_tied = bool(self.config.get("tie_word_embeddings", False))
    self.tensors = _fuse_experts(self._read_tensors())

  def shards(self):
    """The files that hold the tensors: those of the index, else the one."""
    index = self.folder / "model.safetensors.index.json"
    if index.exists():
      weight_map = json.loads(index.read_text("utf-8"))["weight_map"]
      return sorted(set(weight_map.values()))
    return ["model.safetensors"]

  def _read_tensors(self):
    tensors = {}
    for shard in self.shards():
      with safetensors.safe_open(self.folder / shard, "pt") as file:
        for name in file.keys():
          if name.startswith(SKIPPED):
            continue
          short = _strip_prefix(name)
          if short in tensors:
            raise ValueError(f"tensor {name} occurs twice")
          tensors[short] = file.get_tensor(name)
    return tensors

  def digests(self):
    """sha256 per file, and one over all of them.

    The one over all equals, run in the folder with LC_ALL=C,
      sha256sum config.json SHARDS... | sha256sum
    where the names are in byte order (config.json sorts first).
    """
    names = sorted(["config.json"] + self.shards())
    files = {n: _sha256(self.folder / n) for n in names}
    lines = "".join(f"{digest}  {name}\n" for name, digest in files.items())
    return files, hashlib.sha256(lines.encode()).hexdigest()


def _sha256(path):
  digest = hashlib.sha256()
  with open(path, "rb") as file:
    while block := file.read(1 << 20):
      digest.update(block)
  return digest.hexdigest()


def _strip_prefix(name):
  if name in ("lm_head.weight", "language_model.lm_head.weight"):
    return "lm_head.weight"
  for prefix in PREFIXES:
    if name.startswith(prefix):
      return name[len(prefix):]
  raise ValueError(f"tensor {name} is not known")


def _fuse_experts(tensors):
  """cat(gate, up) along rows, then stack over experts."""
  parts, fused = {}, {}
  for name, tensor in tensors.items():
    match = EXPERT.fullmatch(name)
    if match:
      group = parts.setdefault(match[1], {})
      group[int(match[2]), match[3]] = tensor
    else:
      fused[name] = tensor
  for group, by_part in parts.items():
    experts = range(1 + max(expert for expert, _ in by_part))
    fused[f"{group}.gate_up_proj"] = torch.stack([
        torch.cat([by_part[e, "gate"], by_part[e, "up"]]) for e in experts])
    fused[f"{group}.down_proj"] = torch.stack(
        [by_part[e, "down"] for e in experts])
  return fused
