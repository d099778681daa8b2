"""Compares the tokens of a whole run with those of transformers' own modules.

  model_parity.py MODEL_DIR DUMP_DIR [--device cuda] [--least 0]

DUMP_DIR is what tests/tools/dump_layers.cpp wrote; no layers need be named to
it. The ids that the run was fed go through the embeddings, every decoder layer
of transformers one after another (weights in fp32, tf32 off, one layer on the
device at a time), the final norm and lm_head, all positions at once. Printed
are, for the prompt's positions and for those decoded, how many tokens drawn are
transformers' likeliest; of each other one both tokens, and by how much
transformers prefers its own: the difference of its two logits over the standard
deviation of the position's logits; and of logits, where dumped, the median and
the largest ||difference|| / ||logits||. Exit status 1: less than --least of all
positions agree.
"""

import argparse
import sys

import numpy as np
import torch
from transformers.models.qwen3_5_moe import modeling_qwen3_5_moe as modeling

import parity


def residual_after_all(ids, weights, config, device):
  x = weights.embedded(ids).to(device)
  for number in range(config.num_hidden_layers):
    layer = parity.decoder_layer(number, weights, config, device)
    x = parity.run_layer(layer, number, config, x)
    del layer  # before the next one is read
  return x


def logits_of(x, weights, config):
  """lm_head of the final norm, [T, V]."""
  norm = modeling.Qwen3_5MoeRMSNorm(config.hidden_size, config.rms_norm_eps)
  norm.load_state_dict({"weight": final_norm(weights).float()})
  head = weights.tensor("lm_head.weight")
  if head is None:  # tied
    head = weights.tensor("embed_tokens.weight")
  with torch.no_grad():
    return torch.nn.functional.linear(
        norm.to(x.device)(x), head.to(x.device).float())


def final_norm(weights):
  """`norm.weight` alone also ends the names of norms inside layers."""
  name = next(n for n in weights.files
              if n.endswith(".norm.weight") and "layers." not in n)
  return weights.tensor(name)


def report(kind, first, drawn, logits):
  """Prints the agreement of positions from `first` on; returns the count."""
  best = logits.argmax(dim=1).tolist()
  spread = logits.std(dim=1)
  same = sum(d == b for d, b in zip(drawn, best))
  print(f"{kind}: {same} of {len(drawn)} tokens are transformers' likeliest")
  for i, (token, want) in enumerate(zip(drawn, best)):
    if token == want:
      continue
    margin = (logits[i, want] - logits[i, token]) / spread[i]
    print(f"  position {first + i}: drawn {token}, transformers {want}, "
          f"margin {margin:.2e}")
  return same


def report_logits(kind, got, want):
  error = (got - want).norm(dim=1) / want.norm(dim=1)
  print(f"{kind}: logits differ by {error.median():.2e} (median), "
        f"{error.max():.2e} (largest)")


def main():
  parser = argparse.ArgumentParser()
  parser.add_argument("model")
  parser.add_argument("dump")
  parser.add_argument("--device", default="cuda")
  parser.add_argument("--least", type=float, default=0)
  args = parser.parse_args()
  parity.use_fp32()
  dump = parity.Dump(args.dump)
  weights = parity.Weights(args.model)
  config = parity.read_config(args.model)
  fed, drawn = dump.fed(), dump.drawn()
  x = residual_after_all(fed, weights, config, args.device)
  want = logits_of(x, weights, config)
  got = dump.rows("logits")
  prompt = len(dump.prompt)
  same = 0
  for kind, part in (("prompt", slice(0, prompt)),
                     ("decoded", slice(prompt, None))):
    if not drawn[part]:
      continue
    same += report(kind, part.start, drawn[part], want[part])
    if got is not None:
      report_logits(kind, torch.tensor(np.array(got[part])).to(want.device),
                    want[part])
  return 0 if same >= args.least * len(drawn) else 1


if __name__ == "__main__":
  sys.exit(main())
