# SPDX-License-Identifier: Apache-2.0
"""Writes a trained network as a checkpoint in the layout of the published Qwen3.5 MoE models.

Tensors are bf16 under `model.language_model.`, the experts of a layer fused into two tensors, in two
shards with an index. transformers' own save_pretrained splits the experts, so it is not used.
"""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import Qwen3_5MoeForCausalLM

PREFIX = "model.language_model."
SAMPLING = {"do_sample": True, "temperature": 0.8, "top_p": 0.95, "top_k": 40}


def tensors(model: Qwen3_5MoeForCausalLM) -> dict[str, torch.Tensor]:
    out = {}
    for name, parameter in model.named_parameters():  # the tied lm_head is not listed a second time
        if not name.startswith("model."):
            raise ValueError(f"unexpected parameter {name}")
        out[PREFIX + name.removeprefix("model.")] = parameter.detach().to("cpu", torch.bfloat16).contiguous()
    return out


def config_json(model: Qwen3_5MoeForCausalLM) -> dict:
    text = model.config.to_diff_dict() | {"model_type": "qwen3_5_moe_text"}
    for key in ("architectures", "transformers_version", "output_router_logits", "_name_or_path"):
        text.pop(key, None)
    keep = model.config.to_dict()
    for key in (
        "attention_bias", "attention_dropout", "hidden_size", "num_hidden_layers", "num_attention_heads",
        "num_key_value_heads", "head_dim", "hidden_act", "initializer_range", "layer_types", "rms_norm_eps",
        "linear_conv_kernel_dim", "linear_key_head_dim", "linear_num_key_heads", "linear_num_value_heads",
        "linear_value_head_dim", "max_position_embeddings", "moe_intermediate_size", "num_experts",
        "num_experts_per_tok", "rope_parameters", "router_aux_loss_coef", "shared_expert_intermediate_size",
        "tie_word_embeddings", "vocab_size", "use_cache", "bos_token_id", "eos_token_id", "pad_token_id",
    ):  # fmt: skip
        text[key] = keep[key]
    text |= {
        "attn_output_gate": True,
        "dtype": "bfloat16",
        "full_attention_interval": 4,
        "mamba_ssm_dtype": "float32",
        "partial_rotary_factor": keep["rope_parameters"]["partial_rotary_factor"],
    }
    return {
        "architectures": ["Qwen3_5MoeForConditionalGeneration"],
        "model_type": "qwen3_5_moe",
        "text_config": dict(sorted(text.items())),
        "tie_word_embeddings": keep["tie_word_embeddings"],
        "transformers_version": "5.17.0",
    }


def write(model: Qwen3_5MoeForCausalLM, folder: Path) -> None:
    everything = tensors(model)
    total = sum(t.numel() * t.element_size() for t in everything.values())
    shards: list[dict[str, torch.Tensor]] = [{}, {}]
    size = 0
    for name, tensor in everything.items():  # the first shard ends after the first half
        shards[0 if size < total / 2 else 1][name] = tensor
        size += tensor.numel() * tensor.element_size()
    places = {}
    for index, shard in enumerate(shards):
        file = f"model-{index + 1:05d}-of-{len(shards):05d}.safetensors"
        save_file(shard, folder / file, metadata={"format": "pt"})
        (folder / file).chmod(0o644)
        places |= dict.fromkeys(shard, file)
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(places.items()))}
    end = model.config.eos_token_id
    generation = {"eos_token_id": end, "pad_token_id": end, **SAMPLING, "transformers_version": "5.17.0"}
    for name, value in (
        ("model.safetensors.index.json", index),
        ("config.json", config_json(model)),
        ("generation_config.json", generation),
    ):
        (folder / name).write_text(json.dumps(value, indent=2) + "\n")
