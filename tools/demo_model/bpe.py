# SPDX-License-Identifier: Apache-2.0
"""Trains the byte-level BPE tokenizer, in the form of Qwen3.5's tokenizer.json."""

import json
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

import corpus

PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def train(splits: list[corpus.Split], vocab_size: int) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(dropout=None, unk_token=None, fuse_unk=False, byte_fallback=False))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PATTERN), behavior="isolated", invert=False),
            pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False),
        ]
    )
    tokenizer.post_processor = processors.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - 1,
        show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        special_tokens=[],
    )

    # A book of weight w gives a share w of its documents (all of them from 1 upwards).
    def texts():
        for split in splits:
            taken = 0.0
            for document in split.train:
                taken += min(split.book.weight, 1.0)
                if taken >= 1.0:
                    taken -= 1.0
                    yield document

    tokenizer.train_from_iterator(texts(), trainer)
    tokenizer.add_special_tokens([AddedToken(corpus.END_OF_TEXT, special=True, normalized=False)])
    assert tokenizer.get_vocab_size() == vocab_size, tokenizer.get_vocab_size()
    assert tokenizer.token_to_id(corpus.END_OF_TEXT) == vocab_size - 1
    return tokenizer


def save(tokenizer: Tokenizer, folder: Path, max_length: int) -> None:
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "add_prefix_space": False,
        "added_tokens_decoder": {
            str(tokenizer.token_to_id(corpus.END_OF_TEXT)): {
                "content": corpus.END_OF_TEXT,
                "lstrip": False,
                "normalized": False,
                "rstrip": False,
                "single_word": False,
                "special": True,
            }
        },
        "bos_token": None,
        "clean_up_tokenization_spaces": False,
        "eos_token": corpus.END_OF_TEXT,
        "errors": "replace",
        "model_max_length": max_length,
        "pad_token": corpus.END_OF_TEXT,
        "pretokenize_regex": PATTERN,
        "split_special_tokens": False,
        "tokenizer_class": "Qwen3_5Tokenizer",
        "unk_token": None,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")
