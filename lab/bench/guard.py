#!/usr/bin/env python3
"""Whether --cache auto keeps its bound: a line a text, and what answers lose at each size.

    guard.py MODEL FILE [FILE…] [--tokens N] [--json OUT]

For each text and size (1/32 to 1/2) the gauge's figure, and the loss that questions have: nats a
token that the exact cache's own greedy answers are less probable from the small cache. Then the size
that --cache auto takes, its figure and its bytes beside 1/8, and over all texts and sizes the rank
correlation of figure and loss. A text longer than --tokens (4,096) is cut. Texts that OUT has are
not measured again; it is written after each.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

SIZES = ("1/32", "1/16", "1/8", "1/4", "1/2")
QUESTIONS = ("What is this text about? Answer in one sentence.",
             "Name three things that the text mentions.",
             "What is said at the end of the text?")


def run(options, context, cache, questions, extra=()):
    words = [options.program, "run", "-m", options.model, "--context", context, "--json", "-q",
             "--temperature", "0", "-n", str(options.answer), *extra]
    if cache:
        words += ["--cache", cache]
    for question in questions:
        words += ["--question", question]
    return json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)


def questions_of(text):
    """General ones, and to go on from five places of the text."""
    out = list(QUESTIONS)
    for i in range(5):
        at = len(text) * (2 * i + 1) // 10
        line = " ".join(text[at:at + 60].split())
        if line:
            out.append(f'Which words follow this in the text: "{line}"?')
    return out


def loss_of(exact, small):
    """Nats a token: how much less probable the first token that differs, and those before it,
    became. Answers are compared while they agree: behind that they are of different texts."""
    total = count = 0
    for a, b in zip(exact["answers"], small["answers"]):
        for x, y in zip(a["log_probabilities"], b["log_probabilities"]):
            count += 1
            if x["id"] != y["id"]:
                other = [z["log_probability"] for z in y["likeliest"] if z["id"] == x["id"]]
                floor = min((z["log_probability"] for z in y["likeliest"]), default=-20)
                total += max(0, x["log_probability"] - (other[0] if other else floor))
                break
            total += max(0, x["log_probability"] - y["log_probability"])
    return total / max(1, count)


def ranks(values):
    order = sorted(range(len(values)), key=values.__getitem__)
    out = [0.0] * len(values)
    for rank, i in enumerate(order):
        out[i] = rank
    return out


def correlation(xs, ys):
    xs, ys = ranks(xs), ranks(ys)
    mx, my = sum(xs) / len(xs), sum(ys) / len(ys)
    cov = sum((x - mx) * (y - my) for x, y in zip(xs, ys))
    return cov / (sum((x - mx) ** 2 for x in xs) * sum((y - my) ** 2 for y in ys)) ** 0.5


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("files", nargs="+", type=pathlib.Path)
    parser.add_argument("--program", default="build/ballast")
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--answer", type=int, default=24)
    parser.add_argument("--sizes", default=",".join(SIZES))
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    records = []
    if options.json and options.json.exists():
        records = json.loads(options.json.read_text())
    chances = ("--logprobs", "20")
    for file in options.files:
        if file.name in [record["file"] for record in records]:
            continue
        text = file.read_text(encoding="utf-8", errors="replace")[:options.tokens * 3]
        with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as cut:
            cut.write(text)
            cut.flush()
            asked = questions_of(text)
            exact = run(options, cut.name, "", asked, chances)
            tokens = exact["statistics"]["cache_after_prompt"]["tokens"]
            record = {"file": file.name, "tokens": tokens, "sizes": {}}
            for size in options.sizes.split(","):
                small = run(options, cut.name, size, asked, chances)
                gauge = small["statistics"]["gauge"]
                if gauge is None:
                    continue
                loss = loss_of(exact, small)
                record["sizes"][size] = {"kl": gauge["kl"], "loss": loss,
                                         "seconds": gauge["seconds"]}
            auto = run(options, cut.name, "auto", asked[:1])
            tried = auto["statistics"]["tried"]
            gauge = auto["statistics"]["gauge"]
            after = auto["statistics"]["cache_after_prompt"]
            record["auto"] = {"method": auto["method"], "kl": gauge["kl"] if gauge else 0,
                              "tried": tried, "ratio": after["ratio"]}
            records.append(record)
        if options.json:
            options.json.write_text(json.dumps(records, indent=1) + "\n")
        sizes = "  ".join(f"{size} {one['kl']:.4f}/{one['loss']:.4f}"
                          for size, one in record["sizes"].items())
        print(f"{file.name} ({tokens} tokens)  {sizes}  auto: {auto['method']} "
              f"KL {record['auto']['kl']:.4f}, 1/{after['ratio']:.1f} of the bytes", flush=True)
    all_sizes = [one for record in records for one in record["sizes"].values()]
    figures, losses = [one["kl"] for one in all_sizes], [one["loss"] for one in all_sizes]
    if len(figures) > 2:
        print(f"rank correlation of figure and loss over {len(figures)}: "
              f"{correlation(figures, losses):.3f}")
    saved = [1 / record["auto"]["ratio"] for record in records]
    print(f"bytes of --cache auto beside a fixed 1/8: {8 * sum(saved) / len(saved):.2f}; "
          f"largest KL {max(record['auto']['kl'] for record in records):.4f}")


if __name__ == "__main__":
    sys.exit(main())
