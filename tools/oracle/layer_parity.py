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
import sys

import numpy as np
import torch

import parity


def compare_layer(number, dump, weights, config, device):
  if number == 0:
    inputs = weights.embedded(dump.fed()).numpy()
  else:
    inputs = dump.rows("residual", number - 1)
  outputs = dump.rows("residual", number)
  layer = parity.decoder_layer(number, weights, config, device)
  x = torch.tensor(np.array(inputs), device=device)
  scores = []
  layer.mlp.gate.register_forward_hook(
      lambda module, args, out: scores.append(
          torch.nn.functional.linear(args[0], module.weight)))
  want = parity.run_layer(layer, number, config, x)
  got = torch.tensor(np.array(outputs), device=device)
  error = (got - want).norm(dim=1) / want.norm(dim=1)
  change = (got - want).norm(dim=1) / (want - x).norm(dim=1)
  ids = dump.rows("router ids", number)
  wrong, close = check_ids(
      ids, dump.rows("router scores", number),
      scores[0].reshape(x.shape[0], -1).cpu().numpy())
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


def main():
  parser = argparse.ArgumentParser()
  parser.add_argument("model")
  parser.add_argument("dump")
  parser.add_argument("--device", default="cuda")
  parser.add_argument("--prefill-bound", type=float, default=5e-3)
  parser.add_argument("--decode-bound", type=float, default=1e-4)
  args = parser.parse_args()
  parity.use_fp32()
  dump = parity.Dump(args.dump)
  weights = parity.Weights(args.model)
  config = parity.read_config(args.model)
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
