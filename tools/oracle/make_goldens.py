"""Runs golden.py over every generated checkpoint and the demo model.

  make_goldens.py CHECKPOINTS_DIR [--demo models/demo] [--out tests/goldens]

Each sub-folder of CHECKPOINTS_DIR that holds a config.json gives
OUT/NAME.safetensors; the demo gives OUT/demo.safetensors.
"""

import argparse
import json
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent

# Above this vocabulary only 16 positions keep their logits.
LARGE_VOCABULARY = 1024
DEMO_PROMPT = (
    "It was the best of times in the old house by the sea, and the children "
    "had gone down to the water to look for shells before the morning was "
    "over. Their mother stood at the door and watched them, with one hand "
    "held above her eyes, for the sun was already high and very bright. She "
    "had not slept that night, and she was thinking of the letter, which "
    "still lay upon the table where her husband had left it the evening "
    "before, and of the long road to London.")


def vocabulary_of(folder):
  config = json.loads((folder / "config.json").read_text("utf-8"))
  return config.get("text_config", config)["vocab_size"]


def run(folder, out, extra):
  positions = "16" if vocabulary_of(folder) > LARGE_VOCABULARY else "all"
  command = [sys.executable, str(HERE / "golden.py"), str(folder), str(out),
             "--logit-positions", positions] + extra
  subprocess.run(command, check=True)


def main():
  parser = argparse.ArgumentParser()
  parser.add_argument("checkpoints", type=pathlib.Path)
  parser.add_argument("--demo", type=pathlib.Path,
                      default=ROOT / "models" / "demo")
  parser.add_argument("--out", type=pathlib.Path,
                      default=ROOT / "tests" / "goldens")
  arguments = parser.parse_args()
  arguments.out.mkdir(parents=True, exist_ok=True)
  folders = sorted(path.parent
                   for path in arguments.checkpoints.glob("*/config.json"))
  for folder in folders:
    run(folder, arguments.out / f"{folder.name}.safetensors",
        ["--prompt-seed", "1"])
  if (arguments.demo / "config.json").exists():
    run(arguments.demo, arguments.out / "demo.safetensors",
        ["--prompt-text", DEMO_PROMPT])
  else:
    print(f"no demo model in {arguments.demo}: skipped")


if __name__ == "__main__":
  main()
