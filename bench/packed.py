#!/usr/bin/env python3
"""What packed contexts cost: bytes, KL to the exact cache and answers. Goes on where it was interrupted.

    packed.py MODEL [--out FOLDER] [--build build] [--data ../shared/data] [--questions 5] [--alone]

Makes FOLDER/NAME.pack unless it is there (ballast calibrate --packing), then runs bench_packed on texts that no
calibration has seen (data/held-out) and on the joined documents of DATA/plain; --alone: on each document alone, too.
Prints tables: of the joined documents KL a token of exact's own greedy answers, of held-out texts KL a token of what
follows. Run it with `nice -n 19`.
"""
import argparse
import collections
import json
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent


def lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def row(*cells):
    print("| " + " | ".join(cells) + " |")


def print_questions(found):
    groups = collections.defaultdict(list)
    for one in found:
        if "set" in one:
            groups[one["set"] if one["set"] == "joined" else "alone", one["step"]].append(one)
    if not groups:
        return
    row("text", "step", "bytes", "KL", "same", "right", "exact right", "questions")
    row(*["---"] * 8)
    for (name, step), of in groups.items():
        kl = sum(one["kl"] for one in of) / sum(one["tokens"] for one in of)
        divisor = len(of) / sum(1 / one["divisor"] for one in of)
        row(name, step, f"1/{divisor:.1f}", f"{kl:.4f}", *(str(sum(one[key] for one in of))
                                                         for key in ("same", "right", "exact_right")), str(len(of)))
    print()


def print_texts(found):
    texts = collections.defaultdict(dict)
    for one in found:
        if "text" in one:
            texts[one["text"]][one["step"]] = one
    if not texts:
        return
    steps = sorted({step for of in texts.values() for step in of})
    row("text", "exact, nats", *(f"{step}: bytes, KL, nats more" for step in steps))
    row(*["---"] * (2 + len(steps)))
    for name, of in sorted(texts.items()):
        cells = [f"1/{of[s]['divisor']:.1f}, {of[s]['kl']:.4f}, {of[s]['more_loss']:+.3f}" if s in of else ""
                 for s in steps]
        row(name, f"{next(iter(of.values()))['loss']:.3f}", *cells)
    print()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build" / "packed")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--data", type=pathlib.Path, default=ROOT / ".." / "shared" / "data")
    parser.add_argument("--questions", default="5")
    parser.add_argument("--steps", default="16,32,64")
    parser.add_argument("--alone", action="store_true")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    basis = options.out / (options.model.stem + ".pack")
    out = options.out / (options.model.stem + ".jsonl")
    if not basis.exists():
        subprocess.run([options.build / "ballast", "calibrate", "--packing", "-m", options.model, "-o",
                        basis.with_suffix(".scores")], check=True)
    documents = options.data / "plain" / "documents.jsonl"
    parts = [["--texts", *sorted((ROOT / "data" / "held-out").glob("*.txt"))],
             ["--joined", documents, "--questions", options.questions]]
    if options.alone:
        parts.append(["--alone", documents])
    for part in parts:
        subprocess.run([options.build / "bench" / "bench_packed", options.model, basis, out, *part, "--steps",
                        options.steps], check=True, stdout=subprocess.DEVNULL)
    print_questions(lines(out))
    print_texts(lines(out))


if __name__ == "__main__":
    main()
