"""Writes tests/goldens/tokenizer/. README.md describes the files.

  tokenizer_vectors.py [--qwen36 tokenizer.json] [--demo tokenizer.json]
                       [--out tests/goldens/tokenizer] [--count 10000]

Without --qwen36 the tokenizer is rebuilt (see qwen_tokenizer_json.py); with it
the file must be the published one, known by its sha256.
"""

import argparse
import hashlib
import json
import pathlib
import unicodedata

import regex
import tokenizers
from tokenizers import normalizers

import qwen_tokenizer_json
import random_text

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PUBLISHED_SHA256 = (
    "5f9e4d4901a92b997e463c1f46055088b6cca5ca61a6522d1b9f64c4bb81cb42")
SEED = 20240614

CHAT = ("<|im_start|>user\nQuanto fa 17 * 23?<|im_end|>\n"
        "<|im_start|>assistant\n<think>\n")
CHAT_IDS = [248045, 846, 198, 2114, 13168, 2148, 220, 16, 22, 348, 220, 17,
            18, 30, 248046, 198, 248045, 74455, 198, 248068]
# Known encodings, checked here before they are written.
VECTORS = [
    ("hello world", [14556, 1814]),
    ("Hello, world!", [9419, 11, 1814, 0]),
    ("\u4e2d\u6587\u6d4b\u8bd5\uff1a\u3053\u3093\u306b\u3061\u306f\u3002",
     [99986, 99449, 4960, 85951, 1710]),
    ("  one\t two\n\nthree  \n", [220, 799, 197, 1330, 271, 26952, 2228]),
    ("I'm 1234, we're coding.",
     [40, 2688, 220, 16, 17, 18, 19, 11, 567, 2224, 10505, 13]),
    ("def f(x: int) -> str:\n    return f\"{x=}\"\n",
     [727, 281, 2007, 25, 514, 8, 1411, 592, 25, 198, 262, 460, 281, 13724,
      87, 28, 9571, 198]),
    ("Caff\u00e8 gi\u00e0, perch\u00e9 l'AI \u00e8 utile.",
     [34, 2562, 4311, 69028, 11, 58902, 324, 6, 15015, 11094, 175523, 13]),
    # Woman, zero width joiner, laptop; the last e-acute is decomposed.
    ("\U0001F469\u200D\U0001F4BB caf\u00e9 e\u0301",
     [9008, 239, 102, 373, 235, 88995, 119, 50203, 3825]),
    ("\u0301!I", [52033, 87383]),
    ("<think>penso</think>", [248068, 2664, 684, 248069]),
    ("<tool_call>get_weather</tool_call>", [248058, 447, 67017, 248059]),
    ("\u0e01\u0e31\u0e19", [148783]),
    ("\u0915\u094d\u0937", [151858]),
    ("\u0623\u064e\u0647\u0652\u0644\u0627\u064b",
     [67321, 162072, 57392, 155440]),
    (CHAT, CHAT_IDS + [198]),
    (CHAT + "\n</think>\n\n", CHAT_IDS + [271, 248069, 271]),
]


def disagreeing_code_points():
  """Assigned code points that the library classes otherwise than Unicode 14.

  Besides the classes of the pre-tokenizer it compares NFC, one by one.
  """
  points = random_text.assigned()
  text = "".join(map(chr, points))
  wrong = set()
  space = regex.compile(r"\s")
  for letter, expected in (
      ("L", lambda c: unicodedata.category(c)[0] == "L"),
      ("M", lambda c: unicodedata.category(c)[0] == "M"),
      ("N", lambda c: unicodedata.category(c)[0] == "N"),
      (None, lambda c: bool(space.match(c)))):
    pattern = tokenizers.Regex(r"\s" if letter is None else rf"\p{{{letter}}}")
    outside = set(normalizers.Replace(pattern, "").normalize_str(text))
    wrong |= {c for c in text if (c not in outside) != expected(c)}
  nfc = normalizers.NFC()
  for c in text:
    if nfc.normalize_str(c) != unicodedata.normalize("NFC", c):
      wrong.add(c)
  return {ord(c) for c in wrong}


def byte_level_text(text, added_tokens):
  """The bytes that reach the merges, with added tokens cut out."""
  pattern = "|".join(regex.escape(token) for token in added_tokens)
  return b"\0".join(
      unicodedata.normalize("NFC", part).encode()
      for part in regex.split(pattern, text))


def make_strings(count, added_tokens, unsettled):
  skip = disagreeing_code_points()
  generator = random_text.Generator(SEED, added_tokens, skip)
  nfc = normalizers.NFC()
  seen, strings, dropped_nfc, dropped_unsettled = set(), [], 0, 0
  while len(strings) < count:
    text = generator.string()
    if text in seen:
      continue
    seen.add(text)
    if nfc.normalize_str(text) != unicodedata.normalize("NFC", text):
      dropped_nfc += 1
      continue
    raw = byte_level_text(text, added_tokens)
    if any(token in raw for token in unsettled):
      dropped_unsettled += 1
      continue
    strings.append(text)
  return strings, {
      "skipped_code_points": [f"{c:04X}" for c in sorted(skip)],
      "excluded_code_points": [
          f"{c:04X}" for c in sorted(random_text.EXCLUDED)],
      "dropped_for_nfc": dropped_nfc,
      "dropped_for_unsettled_tokens": dropped_unsettled}


def encode(tokenizer, text):
  return tokenizer.encode(text, add_special_tokens=False).ids


def write_ids(path, tokenizer, strings):
  lines = (" ".join(map(str, encode(tokenizer, text))) for text in strings)
  path.write_text("".join(line + "\n" for line in lines), "utf-8")


def main():
  parser = argparse.ArgumentParser()
  parser.add_argument("--qwen36", type=pathlib.Path)
  parser.add_argument("--demo", type=pathlib.Path,
                      default=ROOT / "models" / "demo" / "tokenizer.json")
  parser.add_argument("--out", type=pathlib.Path,
                      default=ROOT / "tests" / "goldens" / "tokenizer")
  parser.add_argument("--count", type=int, default=10000)
  arguments = parser.parse_args()
  arguments.out.mkdir(parents=True, exist_ok=True)

  manifest = {"tokenizers": tokenizers.__version__, "seed": SEED,
              "count": arguments.count,
              "unicode": unicodedata.unidata_version}
  rebuilt, unsettled = qwen_tokenizer_json.rebuild()
  if arguments.qwen36:
    raw = arguments.qwen36.read_bytes()
    if hashlib.sha256(raw).hexdigest() != PUBLISHED_SHA256:
      raise ValueError(f"{arguments.qwen36} is not the published file")
    manifest["qwen36"] = {"source": "published", "sha256": PUBLISHED_SHA256}
    qwen = tokenizers.Tokenizer.from_str(raw.decode("utf-8"))
  else:
    manifest["qwen36"] = {
        "source": "rebuilt from qwen-tokenizer 0.3.0",
        "merges": len(rebuilt["model"]["merges"]),
        "unsettled_tokens": len(unsettled)}
    qwen = tokenizers.Tokenizer.from_str(json.dumps(rebuilt))

  # Unsettled tokens are kept out either way: same strings from both sources.
  strings, facts = make_strings(
      arguments.count, qwen_tokenizer_json.ADDED, unsettled)
  manifest.update(facts)
  with open(arguments.out / "random.jsonl", "w", encoding="utf-8") as file:
    file.writelines(json.dumps(text) + "\n" for text in strings)
  write_ids(arguments.out / "random.qwen36.ids", qwen, strings)
  with open(arguments.out / "vectors.jsonl", "w", encoding="utf-8") as file:
    for text, ids in VECTORS:
      got = encode(qwen, text)
      if got != ids:
        raise ValueError(f"{text!r}: {got}, expected {ids}")
      file.write(json.dumps({"text": text, "ids": ids}) + "\n")
  if arguments.demo.exists():
    raw = arguments.demo.read_bytes()
    manifest["demo"] = {"sha256": hashlib.sha256(raw).hexdigest()}
    write_ids(arguments.out / "random.demo.ids",
              tokenizers.Tokenizer.from_str(raw.decode("utf-8")), strings)
  else:
    print(f"no {arguments.demo}: random.demo.ids not written")
  (arguments.out / "manifest.json").write_text(
      json.dumps(manifest, indent=1, sort_keys=True) + "\n", "utf-8")
  print(json.dumps(manifest, sort_keys=True))


if __name__ == "__main__":
  main()
