#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks an exported demo model with transformers: names, shapes, types, sizes; then the validation loss
and samples.

    python3 check.py --model models/demo [--corpus DIR] [--float32] [--samples N]
"""

import argparse
import json
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors import safe_open
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer

import corpus
from export import PREFIX

LIMIT_TOTAL, LIMIT_SHARD = 24_000_000, 16 * 2**20
SAMPLES = [("Alice was", 1), ("The old captain", 2), ("Once upon a time there was a little", 3)]
SAMPLE_TOKENS = 120


def expected(c: dict) -> dict[str, list[int]]:
    h, e, i, s = c["hidden_size"], c["num_experts"], c["moe_intermediate_size"], c["shared_expert_intermediate_size"]
    d, heads, kv = c["head_dim"], c["num_attention_heads"], c["num_key_value_heads"]
    dk, dv = c["linear_key_head_dim"], c["linear_value_head_dim"]
    hk, hv = c["linear_num_key_heads"], c["linear_num_value_heads"]
    mixed = 2 * hk * dk + hv * dv
    shapes = {"embed_tokens.weight": [c["vocab_size"], h], "norm.weight": [h]}
    for index, kind in enumerate(c["layer_types"]):
        layer = {"input_layernorm.weight": [h], "post_attention_layernorm.weight": [h]}
        layer |= {
            "mlp.gate.weight": [e, h],
            "mlp.experts.gate_up_proj": [e, 2 * i, h],
            "mlp.experts.down_proj": [e, h, i],
            "mlp.shared_expert.gate_proj.weight": [s, h],
            "mlp.shared_expert.up_proj.weight": [s, h],
            "mlp.shared_expert.down_proj.weight": [h, s],
            "mlp.shared_expert_gate.weight": [1, h],
        }
        if kind == "full_attention":
            layer |= {
                "self_attn.q_proj.weight": [2 * heads * d, h],
                "self_attn.k_proj.weight": [kv * d, h],
                "self_attn.v_proj.weight": [kv * d, h],
                "self_attn.o_proj.weight": [h, heads * d],
                "self_attn.q_norm.weight": [d],
                "self_attn.k_norm.weight": [d],
            }
        else:
            layer |= {
                "linear_attn.in_proj_qkv.weight": [mixed, h],
                "linear_attn.in_proj_z.weight": [hv * dv, h],
                "linear_attn.in_proj_b.weight": [hv, h],
                "linear_attn.in_proj_a.weight": [hv, h],
                "linear_attn.conv1d.weight": [mixed, 1, c["linear_conv_kernel_dim"]],
                "linear_attn.A_log": [hv],
                "linear_attn.dt_bias": [hv],
                "linear_attn.norm.weight": [dv],
                "linear_attn.out_proj.weight": [h, hv * dv],
            }
        shapes |= {f"layers.{index}.{name}": shape for name, shape in layer.items()}
    return {PREFIX + name: shape for name, shape in shapes.items()}


def files(folder: Path) -> dict[str, torch.Tensor]:
    config = json.loads((folder / "config.json").read_text())
    assert config["model_type"] == "qwen3_5_moe" and config["text_config"]["model_type"] == "qwen3_5_moe_text"
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    shards = sorted(folder.glob("*.safetensors"))
    assert len(shards) == 2 and all(s.stat().st_size < LIMIT_SHARD for s in shards)
    total = sum(f.stat().st_size for f in folder.iterdir())
    assert total <= LIMIT_TOTAL, total
    tensors = {}
    for shard in shards:
        with safe_open(shard, "pt") as file:
            for name in file.keys():
                assert name not in tensors and index["weight_map"][name] == shard.name, name
                tensors[name] = file.get_tensor(name)
    assert tensors.keys() == index["weight_map"].keys()
    shapes = expected(config["text_config"])
    assert {n: list(t.shape) for n, t in tensors.items()} == shapes
    assert all(t.dtype == torch.bfloat16 and t.isfinite().all() for t in tensors.values())
    assert sum(2 * t.numel() for t in tensors.values()) == index["metadata"]["total_size"]
    count = sum(t.numel() for t in tensors.values())
    print(f"{len(tensors)} tensors, {count} parameters, {total} bytes in the folder, shards "
          + ", ".join(f"{s.stat().st_size}" for s in shards))  # fmt: skip
    return tensors


def reload(folder: Path, tensors: dict[str, torch.Tensor]):
    model, report = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not any(report[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys")), report
    state = model.state_dict()
    assert torch.equal(state.pop("lm_head.weight"), state["model.embed_tokens.weight"])
    assert {PREFIX + n.removeprefix("model.") for n in state} == tensors.keys()
    assert all(torch.equal(t, tensors[PREFIX + n.removeprefix("model.")]) for n, t in state.items())
    tokenizer = AutoTokenizer.from_pretrained(folder)
    plain = Tokenizer.from_file(str(folder / "tokenizer.json"))
    text = f"Alice's 12 cats,\n\n  said: “Café”!{corpus.END_OF_TEXT}I'm \t here "
    assert tokenizer(text)["input_ids"] == plain.encode(text).ids
    assert plain.decode(plain.encode(text).ids, skip_special_tokens=False) == text
    assert tokenizer.eos_token_id == model.generation_config.eos_token_id == plain.token_to_id(corpus.END_OF_TEXT)
    print("transformers reloads every tensor unchanged; both tokenizers agree")
    return model.eval(), tokenizer


@torch.no_grad()
def validation(model, tokenizer, folder: Path, length: int = 1024) -> None:
    sums: dict[bool, list[float]] = {False: [0.0, 0], True: [0.0, 0]}
    characters = {False: 0, True: 0}
    for split in corpus.load(folder):
        bible = split.book.file == "bible-kjv.txt"
        for block in split.valid:
            ids = tokenizer(block, return_tensors="pt")["input_ids"]
            characters[bible] += len(block)
            for at in range(0, ids.shape[1] - 1, length):
                row = ids[:, at : at + length + 1]
                logits = model(input_ids=row[:, :-1], use_cache=False).logits.float()
                sums[bible][0] += F.cross_entropy(logits[0], row[0, 1:], reduction="sum").item()
                sums[bible][1] += row.shape[1] - 1
    for bible, name in ((False, "prose"), (True, "bible")):
        loss, count = sums[bible]
        print(f"{model.dtype} validation {name}: {loss / count:.4f} a token, {count} tokens,"
              f" {loss / characters[bible] / 0.6931472:.3f} bits a character")  # fmt: skip


@torch.no_grad()
def samples(model, tokenizer, count: int) -> None:
    for prompt, seed in SAMPLES:
        for extra in range(count):
            torch.manual_seed(seed + 1000 * extra)
            ids = tokenizer(prompt, return_tensors="pt")
            out = model.generate(**ids, max_new_tokens=SAMPLE_TOKENS)
            print(f"--- {prompt!r}, seed {seed + 1000 * extra}\n{tokenizer.decode(out[0], skip_special_tokens=True)}\n", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Checks an exported demo model with transformers.")
    parser.add_argument("--model", required=True, type=Path)
    parser.add_argument("--corpus", type=Path, help="measure the validation loss on these books")
    parser.add_argument("--float32", action="store_true", help="compute in float32 (from the bf16 weights)")
    parser.add_argument("--samples", type=int, default=0, metavar="N", help="print N samples a prompt")
    args = parser.parse_args()
    model, tokenizer = reload(args.model, files(args.model))
    if args.float32:
        model = model.float()
    if args.samples:
        samples(model, tokenizer, args.samples)
    if args.corpus:
        validation(model, tokenizer, args.corpus)


if __name__ == "__main__":
    main()
