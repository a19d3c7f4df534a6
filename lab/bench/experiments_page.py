#!/usr/bin/env python3
"""Writes the tables of lab/docs/experiments.md from lab/results/PAPER.json.

    experiments_page.py          writes them
    experiments_page.py --check  says where the page differs; exits with 1 if it does

The results are what `ballast eval paper PAPER --json=lab/results/PAPER.json` writes. A table stands
between `<!-- PAPER -->` and `<!-- end -->`; the sentences around them are written by hand, without
figures: a decimal number or a percentage there is a fault.
"""
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "lab/docs/experiments.md"
LONGEST = 360
MADE = re.compile(r"<!-- (\w+) -->\n.*?<!-- end -->\n", re.DOTALL)
METRICS = {"score": "score", "error": "attention error", "nats_per_token": "nats a token",
           "largest": "tokens of the busiest neuron", "rare": "neurons seldom active", "holds": "returns diminish",
           "greedy_worst": "greedy, of the best", "h2o_worst": "Algorithm 2, of the best", "steps_drawn": "steps",
           "slope": "slope", "error_at_2048": "error at 2,048 entries",
           "kept_ratio": "local over global sums", "partial_correlation": "co-occurrence without frequency",
           "compress_seconds": "seconds", "prefill_seconds": "prefill, s", "decode_seconds": "decoding, s",
           "relative_radius": "radius", "sparsity": "sparsity", "share_20": "share of a fifth",
           "tokens_per_second": "tokens/s"}


def number(x):
    return f"{x:.3g}" if abs(x) < 1000 else f"{x:.0f}"


def ranks(row):
    most = max((r["settings"] for r in row["ranking"] if not r["name"].startswith("exact")), default=0)
    words = []
    for r in row["ranking"]:
        few = r["settings"] < most and not r["name"].startswith("exact")
        words.append(f"`{r['name']}` {number(r['mean'])}" + (f" (in {r['settings']} of {most})" if few else ""))
    return ", ".join(words)


def tables(result):
    rows = result["results"]
    out = ["| row | the paper says | its figures | here | verdict |", "|---|---|---|---|---|"]
    label = None
    for row in rows:
        shown = "" if row["row"] == label else row["row"]
        label = row["row"]
        out.append(f"| {shown} | {row['claim']} | {row['paper']} | {row['here']} | {row['verdict']} |")
    # Of two names the first table has all.
    ranked = [row for row in rows if len(row.get("ranking", [])) > 2]
    if ranked:
        out += ["", "More than two measured in a row, the best first (means over its settings):", "",
                "| row | by | best to worst |", "|---|---|---|"]
        for row in ranked:
            out.append(f"| {row['row']} | {METRICS.get(row['metric'], row['metric'])} | {ranks(row)} |")
    commands = dict.fromkeys(row["row_command"] for row in rows if row.get("row_command"))
    # The result's file and the flags for speed are the same in all of them.
    commands = [re.sub(r" -q --json=\S+$", "", command) for command in commands]
    out += ["", "The rows' commands, in their order:", ""] + ["    " + quoted(c) for c in commands]
    return "\n".join(out) + "\n"


def quoted(command):
    return " ".join(f"'{w}'" if (";" in w or "*" in w) and w[:1] != "'" else w for w in command.split(" "))


def page(text):
    def fill(match):
        name = match.group(1)
        result = json.loads((ROOT / f"lab/results/{name}.json").read_text())
        return f"<!-- {name} -->\n{tables(result)}<!-- end -->\n"
    return MADE.sub(fill, text)


def faults(text):
    found = []
    if page(text) != text:
        found.append("its tables are not those of lab/results/: run lab/bench/experiments_page.py")
    lines = len(text.splitlines())
    if lines > LONGEST:
        found.append(f"{lines} lines, at most {LONGEST}")
    # Behind this heading the page has protocols, whose numbers are settings.
    prose = MADE.sub("", text.split("\n## How they ask and score\n")[0])
    prose = re.sub(r"^( {4}|\|).*$|`[^`]*`|Theorem \d\.\d", "", prose, flags=re.MULTILINE)
    for figure in re.findall(r"\d+\.\d+(?![\d.]*\))|\d+ ?%", prose):
        found.append(f"the figure {figure} is typed by hand")
    return found


def main():
    text = PAGE.read_text()
    if sys.argv[1:] == ["--check"]:
        found = faults(text)
        for fault in found:
            print(f"lab/docs/experiments.md: {fault}")
        return 1 if found else 0
    PAGE.write_text(page(text))
    return 0


if __name__ == "__main__":
    sys.exit(main())
