#!/usr/bin/env python3
"""Writes the tables of lab/docs/experiments.md from lab/results/PAPER.json.

    experiments_page.py                     writes them
    experiments_page.py --check             says where the page differs; exits with 1 if it does
    experiments_page.py add PAPER PART...   puts the rows of results of `eval paper PAPER --json=PART` in place of those
                                            of the same name in lab/results/PAPER.json

A table stands between `<!-- PAPER -->` and `<!-- end -->`, the count of verdicts between `<!-- verdicts -->` and
`<!-- end -->`; the sentences around them are written by hand, without figures: a decimal number or a percentage there is
a fault. Of every row with a claim that does not hold a sentence of the paper's section begins with its name: why.
"""
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "lab/docs/experiments.md"
PAPERS = ("balancekv", "clustergen", "h2o")
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
MODELS = {"qwen15": "Qwen 1.5B", "qwen05": "Qwen 0.5B", "smollm2": "SmolLM2"}
NO_METHODS = re.compile(r"layer |all$|\d+$|without |every|output|score|coverage|newton|keys|values|centres")
ENDS = ("agree", "are level", "disagree", "are undecided", "wait for time, a larger model or data")


def number(x):
    return f"{x:.3g}" if abs(x) < 1000 else f"{x:.0f}"


def ranks(row):
    most = max((r["settings"] for r in row["ranking"] if not r["name"].startswith("exact")), default=0)
    words = []
    for r in row["ranking"]:
        few = r["settings"] < most and not r["name"].startswith("exact")
        words.append(f"`{r['name']}` {number(r['mean'])}" + (f" (in {r['settings']} of {most})" if few else ""))
    return ", ".join(words)


def end_of(row):
    """Which of ENDS a claim comes to: what most of its settings show, the better where they are even."""
    if not row.get("pairs"):
        return 4
    counts = [row["holds"], row["level"], row["pairs"] - row["holds"] - row["level"] - row["undecided"],
              row["undecided"]]
    return counts.index(max(counts))


def verdict(row):
    """Of several settings what most show, and in how many."""
    told = row["verdict"]
    if not told.startswith("agrees in "):
        return told
    end = ("agrees", "level", "disagrees", "undecided")[end_of(row)]
    return f"{end} ({told.removeprefix('agrees ') if end == 'agrees' else told})"


def by(row):
    """The model, and what it read."""
    if not row.get("model") or not re.search(r" -m |/prompts|/captured", row["row_command"]):
        return ""
    stem = pathlib.Path(row["model"]).stem
    read = f"{row['longest']:,}" if row.get("longest") else ""
    if row.get("samples"):
        read = f"{row['samples']} × {read}"
    return f"{MODELS.get(stem, stem)}, {read}"


def tables(result):
    rows = result["results"]
    out = ["| row | the paper says | its figures | here | by | verdict |", "|---|---|---|---|---|---|"]
    label = None
    for row in rows:
        first = row["row"] != label
        label = row["row"]
        out.append(f"| {label if first else ''} | {row['claim']} | {row['paper']} | {row['here']} | "
                   f"{by(row) if first else ''} | {verdict(row)} |")
    # Of two names the first table has all.
    ranked = [row for row in rows if len([r for r in row.get("ranking", []) if not NO_METHODS.match(r["name"])]) > 2]
    if ranked:
        out += ["", "More than two methods in a row, the best first (means over its settings):", "",
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


def results_of(paper):
    return json.loads((ROOT / f"lab/results/{paper}.json").read_text())


def verdicts():
    counts = [0] * len(ENDS)
    for paper in PAPERS:
        for row in results_of(paper)["results"]:
            counts[end_of(row)] += 1
    told = [f"{count} {end}" for count, end in zip(counts, ENDS)]
    return (f"Of {sum(counts)} claims **{sum(counts[:3])} have a verdict**: {', '.join(told[:3])}.\n"
            f"Of the others {told[3]}, {told[4]}.\n")


def page(text):
    def fill(match):
        name = match.group(1)
        made = verdicts() if name == "verdicts" else tables(results_of(name))
        return f"<!-- {name} -->\n{made}<!-- end -->\n"
    return MADE.sub(fill, text)


def unexplained(text):
    """Rows with a claim that does not hold and no sentence that says why."""
    for paper in PAPERS:
        prose = text.split(f"<!-- {paper} -->")[-1].split("<!-- end -->\n", 1)[-1].split("\n## ")[0]
        for label in dict.fromkeys(r["row"] for r in results_of(paper)["results"] if end_of(r) == 2):
            if f"**{label}" not in prose:
                yield f"{paper}: nothing says why {label} disagrees"


def faults(text):
    found = list(unexplained(text))
    if page(text) != text:
        found.append("its tables are not those of lab/results/: run lab/bench/experiments_page.py")
    lines = len(text.splitlines())
    if lines > LONGEST:
        found.append(f"{lines} lines, at most {LONGEST}")
    # Behind this heading the page has protocols, whose numbers are settings.
    prose = MADE.sub("", text.split("\n## How they ask and score\n")[0])
    prose = re.sub(r"^( {4}|\|).*$|`[^`]*`|Theorem \d\.\d|Qwen[\w.-]*( [\d.]+B)?", "", prose, flags=re.MULTILINE)
    for figure in re.findall(r"\d+\.\d+(?![\d.]*\))|\d+ ?%", prose):
        found.append(f"the figure {figure} is typed by hand")
    return found


def merged(old, part):
    """The rows of `old`, those of a name in `part` in their place; other rows of `part` behind."""
    new = {}
    for row in part:
        row.pop("command", None)
        new.setdefault(row["name"], []).append(row)
    out = []
    for row in old:
        if row["name"] not in new:
            out.append(row)
        elif new[row["name"]]:
            out += new[row["name"]]
            new[row["name"]] = []
    return out + [row for rows in new.values() for row in rows]


def add(paper, parts):
    path = ROOT / f"lab/results/{paper}.json"
    result = results_of(paper) if path.exists() else {"results": []}
    for part in parts:
        measured = json.loads(pathlib.Path(part).read_text())
        rows = merged(result["results"], measured["results"])
        result = {"title": measured["title"], "command": f"./lab/bench/experiments.sh {paper}", "results": rows}
    path.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")


def main():
    if sys.argv[1:2] == ["add"]:
        add(sys.argv[2], sys.argv[3:])
        return 0
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
