#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the demo model: trains the tokenizer and the network on the books and exports a checkpoint.

    python3 train.py --corpus DIR --out models/demo
"""

import argparse
import json
import math
import time
from pathlib import Path

import numpy as np
import torch

import bpe
import corpus
import export
import model as demo

TEACHERS = ["0.1:0.3", "0.2:0.3", "0.1:1.0"]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--corpus", required=True, type=Path, help="folder of the twelve books")
    parser.add_argument("--out", type=Path, help="where the checkpoint goes; nothing is written without it")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=20)
    parser.add_argument("--batch", type=int, default=48)
    parser.add_argument("--length", type=int, default=1024, help="tokens in a training window")
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--warmup", type=int, default=150)
    parser.add_argument("--ema", type=float, default=0.998)
    parser.add_argument(
        "--teacher",
        action="append",
        metavar="DROPOUT:DECAY",
        help="a network to train first, for the model to learn from; may be repeated; 'none' for none"
        f" (default: {' '.join(TEACHERS)})",
    )
    parser.add_argument("--teacher-steps", type=int, default=1800)
    parser.add_argument("--teacher-share", type=float, default=0.7, help="of the loss; the rest is the text's")
    parser.add_argument("--steps", type=int, default=2531)
    parser.add_argument("--dropout", type=float, help="default: that of the teacher that validates best")
    parser.add_argument("--decay", type=float, help="AdamW weight decay; default: likewise")
    parser.add_argument("--evals", type=int, default=10, help="validations in a run, evenly spaced")
    parser.add_argument("--minutes", type=float, help="shorten the runs, if need be, to end within this time")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--self-test", action="store_true", help="compare with transformers first")
    return parser.parse_args()


class Data:
    def __init__(self, args: argparse.Namespace):
        splits = corpus.load(args.corpus)
        self.tokenizer = bpe.train(splits, demo.VOCAB)
        end = self.tokenizer.token_to_id(corpus.END_OF_TEXT)
        self.names = [s.book.title for s in splits]
        self.prose = [s.book.file != "bible-kjv.txt" for s in splits]
        streams = []
        for split in splits:
            ids: list[int] = []
            for encoding in self.tokenizer.encode_batch(split.train):
                ids += encoding.ids + [end]
            streams.append(np.array(ids, dtype=np.int64))
        sizes = np.array([len(s) for s in streams])
        starts = np.concatenate([[0], sizes.cumsum()[:-1]])
        share = sizes * np.array([s.book.weight for s in splits])
        self.sizes, self.share = sizes, share / share.sum()

        self.device = device = torch.device(args.device)
        self.length, self.batch = args.length, args.batch
        self.stream = torch.from_numpy(np.concatenate(streams)).to(device)
        self.starts = torch.from_numpy(starts).to(device)
        self.room = torch.from_numpy(sizes - args.length).to(device)
        self.odds = torch.from_numpy(self.share).to(device)
        if self.room.min() < 1:
            raise SystemExit("--length exceeds the shortest book")

        # Validation: every held-out block in windows of args.length, without overlap.
        rows, books = [], []
        for index, split in enumerate(splits):
            for block in split.valid:
                ids = self.tokenizer.encode(block).ids
                for at in range(0, len(ids) - 1, args.length):
                    row = ids[at : at + args.length + 1]
                    rows.append(row + [-100] * (args.length + 1 - len(row)))
                    books.append(index)
        while len(rows) % args.batch:
            rows.append([-100] * (args.length + 1))
            books.append(0)
        self.valid = torch.tensor(rows, device=device)
        self.valid_books = torch.tensor(books, device=device)

    def windows(self, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        book = torch.multinomial(self.odds, self.batch, replacement=True, generator=generator)
        place = torch.rand(self.batch, generator=generator, device=self.device, dtype=torch.float64)
        first = self.starts[book] + (place * self.room[book]).long()
        rows = self.stream[first[:, None] + torch.arange(self.length + 1, device=self.device)]
        return rows[:, :-1], rows[:, 1:]

    @torch.no_grad()
    def validate(self, net: demo.Trainable | demo.Ensemble) -> dict:
        total = torch.zeros(len(self.names), device=self.device)
        count = torch.zeros(len(self.names), device=self.device)
        for at in range(0, len(self.valid), self.batch):
            rows, books = self.valid[at : at + self.batch], self.valid_books[at : at + self.batch]
            targets = rows[:, 1:]
            losses, _ = net.losses(rows[:, :-1].clamp(min=0), targets)
            total.index_add_(0, books, losses.view_as(targets).sum(1))
            count.index_add_(0, books, (targets >= 0).sum(1).float())
        prose = torch.tensor(self.prose, device=self.device)
        per_book = (total / count).tolist()
        return {
            "prose": (total[prose].sum() / count[prose].sum()).item(),
            "bible": (total[~prose].sum() / count[~prose].sum()).item(),
            "all": (total.sum() / count.sum()).item(),
            "books": dict(zip(self.names, per_book)),
            "tokens": int(count.sum().item()),
        }


def optimizer(model: torch.nn.Module, args: argparse.Namespace, decay: float) -> torch.optim.Optimizer:
    """Weight decay on matrices alone: not on norms, convolution taps, A_log and dt_bias."""
    decayed, plain = [], []
    for name, parameter in model.named_parameters():
        matrix = parameter.ndim >= 2 and "conv1d" not in name
        (decayed if matrix else plain).append(parameter)
    groups = [
        {"params": decayed, "weight_decay": decay},
        {"params": plain, "weight_decay": 0.0},
    ]
    fused = args.device.startswith("cuda")
    return torch.optim.AdamW(groups, lr=args.lr, betas=(0.9, 0.98), fused=fused)


def rate(step: int, steps: int, warmup: int) -> float:
    if step < warmup:
        return (step + 1) / warmup
    return 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, steps - warmup)))


def copy(source: list[torch.Tensor], into: list[torch.Tensor]) -> None:
    torch._foreach_copy_(into, source)


def network(args: argparse.Namespace, seed: int) -> demo.Trainable:
    cuda = args.device.startswith("cuda")
    kind = torch.bfloat16 if cuda else torch.float32
    return demo.Trainable(demo.build(demo.text_config(), seed).to(args.device), kind, cuda and not args.no_compile)


def train(
    data: Data,
    args: argparse.Namespace,
    label: str,
    seed: int,
    steps: int,
    dropout: float,
    decay: float,
    teachers: list[demo.Trainable],
    deadline: float,
):
    """Returns the network with the weights of the best validation loss on prose, and a record of it."""
    print(f"{label}: seed {seed}, {steps} steps, dropout {dropout}, weight decay {decay}", flush=True)
    net = network(args, seed)
    drop = torch.tensor(dropout, device=args.device)
    parameters = list(net.model.parameters())
    average = [p.detach().clone() for p in parameters]
    best_weights = [p.detach().clone() for p in parameters]
    opt = optimizer(net.model, args, decay)
    generator = torch.Generator(args.device).manual_seed(seed + 1)
    torch.manual_seed(seed + 2)  # dropout
    coefficient = net.config.router_aux_loss_coef

    every = max(1, steps // args.evals)
    record, best = [], None
    seen = torch.zeros(3, device=args.device)
    start = mark = time.time()
    step = -1
    while (step := step + 1) < steps:
        factor = rate(step, steps, args.warmup)
        for group in opt.param_groups:
            group["lr"] = args.lr * factor
        tokens, targets = data.windows(generator)
        losses, balance, text = net.objective(tokens, targets, drop, teachers, args.teacher_share)
        (losses + coefficient * balance).backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0, foreach=True)
        opt.step()
        opt.zero_grad(set_to_none=True)
        with torch.no_grad():
            torch._foreach_lerp_(average, parameters, 1 - min(args.ema, (step + 1) / (step + 10)))
            seen += torch.stack([text.detach(), balance.detach(), torch.ones_like(text)])
        if step in (40, 100):
            loss = text.item()  # waits for the device
            pace = (time.time() - mark) / (60 if step == 100 else 41)
            mark = time.time()
            print(f"{label} step {step} {mark - start:.1f}s {pace * 1e3:.1f} ms a step, loss {loss:.3f}", flush=True)
            if step == 100 and mark + (steps - step) * pace * 1.03 > deadline:
                steps = max(step + 2, step + int((deadline - mark) / (pace * 1.03)))
                every = max(1, steps // args.evals)
                print(f"{label} shortened to {steps} steps", flush=True)

        if (step + 1) % every == 0 or step + 1 == steps:
            raw = data.validate(net)
            held = [p.detach().clone() for p in parameters]
            with torch.no_grad():
                copy(average, parameters)
            ema = data.validate(net)
            smooth = ema["prose"] < raw["prose"]
            chosen = ema if smooth else raw
            train_loss, mean_balance, _ = (seen / seen[2]).tolist()
            seen.zero_()
            row = {
                "step": step + 1,
                "train": train_loss,
                "balance": mean_balance,
                "valid": {k: raw[k] for k in ("prose", "bible", "all")},
                "valid_average": {k: ema[k] for k in ("prose", "bible", "all")},
                "seconds": round(time.time() - start, 1),
            }
            record.append(row)
            if best is None or chosen["prose"] < best["valid"]["prose"]:
                best = {"step": step + 1, "train": train_loss, "average": smooth, "valid": chosen}
                with torch.no_grad():
                    copy(average if smooth else held, best_weights)
            with torch.no_grad():
                copy(held, parameters)
            print(
                f"{label} step {step + 1} {row['seconds']}s train {train_loss:.4f} balance {mean_balance:.3f}"
                f" valid prose {raw['prose']:.4f} bible {raw['bible']:.4f}"
                f" | average prose {ema['prose']:.4f} bible {ema['bible']:.4f}",
                flush=True,
            )
    with torch.no_grad():
        copy(best_weights, parameters)
    print(f"{label} best: step {best['step']} prose {best['valid']['prose']:.4f}", flush=True)
    return net, {"seed": seed, "steps": steps, "dropout": dropout, "decay": decay, "best": best, "record": record}


def save(data: Data, model: torch.nn.Module, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    bpe.save(data.tokenizer, folder, model.config.max_position_embeddings)
    export.write(model, folder)


def main() -> None:
    launched = time.time()
    args = arguments()
    torch.backends.cuda.matmul.allow_tf32 = False
    data = Data(args)
    print(
        f"{int(data.sizes.sum())} training tokens, {int((data.valid[:, 1:] >= 0).sum())} validation tokens; shares "
        + " ".join(f"{n[:12]}:{s:.2f}" for n, s in zip(data.names, data.share)),
        flush=True,
    )
    if args.self_test:
        for compiled in (False, not args.no_compile and args.device.startswith("cuda")):
            test = demo.build(demo.text_config(), args.seed).to(args.device)
            print("self test, largest difference of a loss:", demo.self_test(test, compiled=compiled), flush=True)

    began = time.time()
    if args.device.startswith("cuda"):  # compile everything before the clock of --minutes is divided
        net = network(args, 0)
        tokens, targets = data.windows(torch.Generator(args.device).manual_seed(0))
        for teachers in ([], [net]):
            goal, balance, _ = net.objective(tokens, targets, torch.tensor(0.1, device=args.device), teachers, 0.5)
            (goal + balance).backward()
        data.validate(net)
        torch.cuda.synchronize()
        del net, goal, balance
        print(f"compiled in {time.time() - began:.1f}s", flush=True)

    settings = [tuple(map(float, t.split(":"))) for t in args.teacher or TEACHERS if t != "none"]
    now = time.time()
    end = launched + 60 * args.minutes if args.minutes else math.inf
    teachers, lessons = [], []
    for index, (dropout, decay) in enumerate(settings):
        deadline = now + (end - now) * 0.5 * (index + 1) / len(settings)
        seed = args.seed + 100 * (index + 1)
        net, lesson = train(
            data, args, f"teacher {index + 1}", seed, args.teacher_steps, dropout, decay, [], deadline
        )
        teachers.append(net)
        lessons.append(lesson)
    dropout, decay = args.dropout, args.decay
    if lessons:
        best = min(lessons, key=lambda r: r["best"]["valid"]["prose"])
        dropout = best["dropout"] if dropout is None else dropout
        decay = best["decay"] if decay is None else decay
        if args.out:  # in case the rest does not finish
            save(data, teachers[lessons.index(best)].model, args.out)
        ensemble = data.validate(demo.Ensemble(teachers))
        print("teachers together:", json.dumps(ensemble), flush=True)
    net, history = train(
        data, args, "model", args.seed, args.steps, dropout or 0.0, decay or 0.0, teachers, end
    )
    if lessons:
        history |= {"teachers": lessons, "teachers_together": ensemble}

    # What rounding the weights to bf16 costs.
    with torch.no_grad():
        for parameter in net.model.parameters():
            parameter.copy_(parameter.bfloat16().float())
    rounded = data.validate(net)
    history["rounded"] = rounded
    print("rounded to bf16:", json.dumps(rounded), flush=True)

    if args.out:
        save(data, net.model, args.out)
        history["arguments"] = {k: v for k, v in vars(args).items() if k not in ("corpus", "out")}
        (args.out / "training.json").write_text(json.dumps(history, indent=1) + "\n")
        print("written", args.out, flush=True)


if __name__ == "__main__":
    main()
