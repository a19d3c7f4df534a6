#!/usr/bin/env python3
"""Writes the tables of scores in lab/docs/evidence.md from lab/results/real/MODEL.jsonl (lab/bench/real.sh).

    real_page.py          writes them
    real_page.py --check  says where the page differs; exits with 1 if it does

A table stands between `<!-- NAME -->` and `<!-- end -->`.
"""
import collections
import math
import statistics
import sys
import textwrap

import real_rows
from experiments_page import MADE, ROOT

PAGE = ROOT / "lab/docs/evidence.md"
RESULTS = ROOT / "lab/results/real"
SHARES = {0.5: "1/2", 0.25: "1/4", 0.125: "1/8", 0.0625: "1/16", 0.03125: "1/32"}
CHANCE = 0.2  # of the exact cache's mean score, below which a task says nothing of methods


class Task:
    """The differences of one method at one size against the exact cache on one task, in points."""

    def __init__(self):
        self.exact, self.units = [], []

    def add(self, row, exact):
        """A unit is a text: questions of one text are no independent samples."""
        each = len(row["scores"]) // row["contexts"]
        self.exact += exact["scores"]
        for at in range(0, len(row["scores"]), each):
            pairs = zip(exact["scores"][at:at + each], row["scores"][at:at + each])
            self.units.append(100 * statistics.mean(b - a for a, b in pairs))

    def mean(self):
        return statistics.mean(self.units)

    def error(self):
        """The standard error; where no two texts differ, that of the rule of three for questions."""
        count = len(self.units)
        spread = statistics.stdev(self.units) if count > 1 else 0
        return spread / math.sqrt(count) if spread > 0 else 100 * min(1, 3 / len(self.exact)) / 1.96


class Model:
    def __init__(self, path):
        self.name = path.stem
        rows = real_rows.read(path)
        self.rows = [row for row in rows if row.get("scores")]
        self.unfit = {(row["engine"], row["method"], row["share"]) for row in rows if not row.get("bytes")}
        place = lambda row: (row["engine"], row["task"], row["length"], row["first"])
        exact = {place(row): row for row in self.rows if row["method"] == "exact"}
        self.tasks = collections.defaultdict(lambda: collections.defaultdict(Task))
        self.bytes = collections.defaultdict(list)
        for row in self.rows:
            # A peer's exact cache is held against ours, its methods against its own.
            engine = "ballast" if row["method"] == "exact" else row["engine"]
            base = exact.get((engine,) + place(row)[1:])
            if not base:
                continue
            name = (row["engine"], row["method"], row["share"])
            self.tasks[name][row["task"], row["length"]].add(row, base)
            self.bytes[name].append(row["bytes"])
        self.exact = collections.defaultdict(list)
        for (engine, task, length, _), row in exact.items():
            self.exact[engine, task, length] += row["scores"]

    def counted(self, engine):
        """Tasks that the exact cache answers better than by chance."""
        return [(task, length) for (of, task, length), scores in self.exact.items()
                if of == engine and statistics.mean(scores) >= CHANCE]

    def loss(self, name):
        """Mean over tasks of the difference, its 1.96 errors, and how many tasks that are."""
        counted = self.counted(name[0])
        tasks = [t for place, t in self.tasks.get(name, {}).items() if place in counted]
        if not tasks:
            return None
        half = 1.96 * math.sqrt(sum(t.error() ** 2 for t in tasks)) / len(tasks)
        return statistics.mean(t.mean() for t in tasks), half, len(tasks)


def models():
    return [Model(path) for path in sorted(RESULTS.glob("*.jsonl"))]


def points(mean, half):
    return f"{mean:+.0f} ± {half:.0f}".replace("-0 ", "0 ").replace("+0 ", "0 ").replace("-", "−")


def names(model, engine):
    """(method, share, …) of an engine, the exact cache's types first, then the best at the smallest loss."""
    methods = list(dict.fromkeys(name[1] for name in model.tasks
                                 if name[0] == engine and (name[1] != "exact" or engine != "ballast")))

    def rank(method):
        found = [model.loss((engine, method, share)) for share in SHARES]
        found = [loss[0] for loss in found if loss]
        return (not method.startswith("exact"), -statistics.mean(found) if found else 0)

    return sorted(methods, key=rank)


def summary():
    """What each method loses against the exact cache, by size."""
    out = []
    for model in models():
        engines = sorted({name[0] for name in model.tasks})
        counted = model.counted("ballast")
        scores = ", ".join(f"{task} {100 * statistics.mean(model.exact['ballast', task, length]):.0f}"
                           for task, length in counted)
        tasks = f"{len(counted)} task{'s' * (len(counted) > 1)}"
        out += ["", *textwrap.wrap(f"**{model.name}**: mean of {tasks}, on which the exact cache scores {scores}.", 118),
                ""]
        shown = [share for share in SHARES if any(name[2] == share for name in model.tasks)]
        out += ["| method | size of its own | " + " | ".join(SHARES[s] for s in shown) + " | texts |",
                "|---" * (len(shown) + 3) + "|"]
        for engine in engines:
            for method in names(model, engine):
                cells = []
                for share in [None] + shown:
                    loss = model.loss((engine, method, share))
                    cell = points(*loss[:2]) if loss else ""
                    if (engine, method, share) in model.unfit:
                        cell = "–"
                    if loss and share is None:
                        cell = f"{statistics.mean(model.bytes[engine, method, None]):.2f}: {cell}"
                    cells.append(cell)
                least = min(sum(len(t.units) for t in model.tasks[name].values())
                            for name in model.tasks if name[:2] == (engine, method))
                shown_name = f"`{method}`" + ("" if engine == "ballast" else f" ({engine})")
                out.append(f"| {shown_name} | {' | '.join(cells)} | {least} |")
    return out[1:] or ["No results yet."]


def tasks():
    """The same by task, at an eighth or the method's own size."""
    out = []
    for model in models():
        places = sorted({(task, length) for engine, task, length in model.exact if engine == "ballast"})
        out += ["", f"**{model.name}**", "",
                "| method | " + " | ".join(f"{task}, {length}" for task, length in places) + " |",
                "|---" * (len(places) + 1) + "|"]
        exact = [model.exact["ballast", *place] for place in places]
        out.append("| `exact`: score (questions) | "
                   + " | ".join(f"{100 * statistics.mean(s):.0f} ({len(s)})" for s in exact) + " |")
        for method in names(model, "ballast"):
            share = None if method.startswith("exact") else 0.125
            found = [model.tasks.get(("ballast", method, share), {}).get(place) for place in places]
            out.append(f"| `{method}` | "
                       + " | ".join(points(t.mean(), 1.96 * t.error()) if t else "" for t in found) + " |")
    return out[1:] or ["No results yet."]


def page(text):
    made = {"summary": summary, "tasks": tasks}
    return MADE.sub(lambda m: f"<!-- {m[1]} -->\n" + "\n".join(made[m[1]]()) + "\n<!-- end -->\n"
                    if m[1] in made else m[0], text)


def main():
    text = PAGE.read_text()
    made = page(text)
    if sys.argv[1:] == ["--check"]:
        if made != text:
            print("lab/docs/evidence.md: its tables are not those of lab/results/real: run lab/bench/real_page.py")
        return 1 if made != text else 0
    PAGE.write_text(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
