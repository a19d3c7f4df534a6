#!/usr/bin/env python3
"""What packed contexts cost: bytes, KL to the exact cache, answers, processor time. Goes on where it was interrupted.

    packed.py MODEL [--parts texts,joined,alone,code,kvtc,eighth,times] [--out FOLDER] [--build build]
              [--data ../shared/data] [--steps 16,32,64]

Makes FOLDER/NAME.pack unless it is there (ballast calibrate --packing), runs bench_packed for each part, and prints
the tables of docs/packed.md from what FOLDER/NAME.jsonl has by then:

    texts    texts that no calibration has seen (data/held-out): KL a token of what follows
    joined   eight documents in one text, 40 questions: KL a token of exact's own answers, answers that are right
    alone    each document alone, 80 questions, at 1/32
    code     constants of 4,096 tokens of code, 40 questions, at 1/16
    kvtc     KVTC's scheme on the joined documents, at several sizes
    eighth   an eighth by calibrated scores on the joined documents: as they are read, and unpacked from 1/16
    times    processor seconds of reading, saving and loading 7,000 tokens, of whole runs of the program

Run it with `nice -n 19`: only processor time is measured, which other work on the machine changes little.
"""
import argparse
import collections
import json
import os
import pathlib
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]


def lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def row(*cells):
    print("| " + " | ".join(cells) + " |")


def print_questions(found):
    groups = collections.defaultdict(list)
    for one in found:
        if "set" in one:
            groups[one["part"], one["step"]].append(one)
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
    row("text", "tokens", "exact, nats", *(f"{step}: bytes, KL, nats more" for step in steps))
    row(*["---"] * (3 + len(steps)))
    for name, of in sorted(texts.items()):
        cells = [f"1/{of[s]['divisor']:.1f}, {of[s]['kl']:.4f}, {of[s]['more_loss']:+.3f}" if s in of else ""
                 for s in steps]
        one = next(iter(of.values()))
        row(name, str(one["context"]), f"{one['loss']:.3f}", *cells)
    print()


def print_times(found):
    times = [one for one in found if "run" in one]
    if not times:
        return
    row("run", "processor seconds", "bytes of the file")
    row(*["---"] * 3)
    for one in times:
        row(one["run"], f"{one['cpu']:.1f}", str(one["bytes"]))
    print()


def measure_times(options, basis, out):
    """Runs of the program, each in its own process: user and system time of all its threads."""
    done = {one["run"] for one in lines(out) if "run" in one}
    folder = options.out / "times"
    folder.mkdir(exist_ok=True)
    model = folder / options.model.name
    for link, to in ((model, options.model.resolve()), (folder / (options.model.name + ".pack"), basis.resolve())):
        if not link.exists():
            link.symlink_to(to)
    documents = lines(options.data / "plain" / "documents.jsonl")
    (folder / "text.txt").write_text("\n\n----\n\n".join(d["text"] for d in documents), encoding="utf-8")
    ask = ["--question", "Who wrote the letter?", "-n", "1"]
    read, save = ["--context", folder / "text.txt", *ask], lambda name: ["--save-cache", folder / name]
    runs = {"read": [*read], "read and save to the bit": [*read, *save("exact")],
            "read and save at 1/16": [*read, *save("p16"), "--pack", "1/16"],
            "read and save at 1/32": [*read, *save("p32"), "--pack", "1/32"],
            "load to the bit": ["--load-cache", folder / "exact", *ask],
            "load from 1/16": ["--load-cache", folder / "p16", *ask],
            "load from 1/32": ["--load-cache", folder / "p32", *ask],
            "load from 1/16 into an eighth": ["--load-cache", folder / "p16", "--cache", "1/8", *ask]}
    for name, arguments in runs.items():
        if name in done:
            continue
        before = os.times()
        subprocess.run([options.build / "ballast", "run", "-q", "-m", model, *arguments], check=True,
                       stdout=subprocess.DEVNULL)
        after = os.times()
        cpu = after.children_user + after.children_system - before.children_user - before.children_system
        file = folder / {"read and save to the bit": "exact"}.get(name, "p" + name[-2:])
        size = file.stat().st_size if "save" in name else 0
        with out.open("a", encoding="utf-8") as log:
            log.write(json.dumps({"key": "times|" + name, "run": name, "cpu": cpu, "bytes": size}) + "\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build" / "packed")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--data", type=pathlib.Path, default=ROOT / ".." / "shared" / "data")
    parser.add_argument("--steps", default="16,32,64")
    parser.add_argument("--parts", default="texts,joined,alone,code,kvtc,times")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    basis = options.out / (options.model.stem + ".pack")
    out = options.out / (options.model.stem + ".jsonl")
    if not basis.exists():
        start = time.time()
        subprocess.run([options.build / "ballast", "calibrate", "-q", "--packing", "-m", options.model, "-o",
                        basis.with_suffix(".scores")], check=True)
        print(f"calibrated in {time.time() - start:.0f} s")
    documents = options.data / "plain" / "documents.jsonl"
    code = options.out / "code_constant.jsonl"
    parts = options.parts.split(",")
    if "code" in parts and not code.exists():
        subprocess.run([options.build / "ballast", "eval", "ruler", "-m", options.model, "--make", options.out,
                        "--haystack", ROOT / "data" / "held-out" / "english.txt", "--lengths", "4096", "--tasks",
                        "code_constant", "--count", "10", "--questions", "4", "-q"], check=True,
                       stdout=subprocess.DEVNULL)
        (options.out / "4096" / "code_constant.jsonl").rename(code)
    known = {"texts": (options.steps, ["--texts", *sorted((ROOT / "data" / "held-out").glob("*.txt"))]),
             "joined": (options.steps, ["--joined", documents, "--questions", "5"]),
             "alone": ("32", ["--alone", documents]), "code": ("16", ["--samples", code]),
             "eighth": ("eighth,16-eighth", ["--joined", documents, "--questions", "5"]),
             "kvtc": ("kvtc6,kvtc8,kvtc10,kvtc12,kvtc16", ["--joined", documents, "--questions", "5"])}
    for part in parts:
        if part == "times":
            measure_times(options, basis, out)
        else:
            steps, arguments = known[part]
            subprocess.run([options.build / "bench" / "bench_packed", options.model, basis, out, *arguments, "--steps",
                            steps], check=True, stdout=subprocess.DEVNULL)
    print_questions(lines(out))
    print_texts(lines(out))
    print_times(lines(out))


if __name__ == "__main__":
    main()
