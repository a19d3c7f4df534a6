#!/usr/bin/env python3
"""Writes the tables of scores in lab/docs/evidence.md, and lab/docs/evidence.svg, from lab/results/real/MODEL.jsonl.

    real_page.py          writes them
    real_page.py --check  says whether they differ; exits with 1 if they do

A table stands between `<!-- NAME -->` and `<!-- end -->`.
"""
import collections
import math
import statistics
import sys
import textwrap

import real_picture
import real_plan
import real_rows
from experiments_page import MADE, ROOT

PAGE = ROOT / "lab/docs/evidence.md"
PICTURE = ROOT / "lab/docs/evidence.svg"
RESULTS = ROOT / "lab/results/real"
SHARES = {0.5: "1/2", 0.25: "1/4", 0.125: "1/8", 0.0625: "1/16", 0.03125: "1/32", 0.015625: "1/64"}
SAID = {"streaming-llm": "start and recent window", "uniform": "random tokens", "packed": "at rest"}
MAIN = "qwen2.5-coder-0.5b", 4096  # the model and length of the first table and the picture
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


def of_forms(row):
    """Packed contexts as one method: their forms are its shares, near which their bytes are."""
    method, _, form = row["method"].partition(":")
    return row | {"method": "packed", "share": real_rows.TYPES[form]} if method == "packed" else row


class Model:
    """Of `only`: one task's rows."""

    def __init__(self, path, only=None):
        self.name = path.stem
        rows = [of_forms(row) for row in real_rows.read(path) if only in (None, row["task"])]
        self.rows = [row for row in rows if row.get("scores")]
        self.unfit = {(row["engine"], row["method"], row["share"], row["length"]) for row in rows
                      if not row.get("bytes")}
        place = lambda row: (row["engine"], row["task"], row["length"], row["first"])
        exact = {place(row): row for row in self.rows if row["method"] == "exact"}
        self.tasks = collections.defaultdict(lambda: collections.defaultdict(Task))
        self.bytes = collections.defaultdict(list)  # by name and length
        for row in self.rows:
            # A peer's exact cache is held against ours, its methods against its own.
            engine = "ballast" if row["method"] == "exact" else row["engine"]
            base = exact.get((engine,) + place(row)[1:])
            if not base:
                continue
            name = (row["engine"], row["method"], row["share"])
            self.tasks[name][row["task"], row["length"]].add(row, base)
            self.bytes[name + (row["length"],)].append(row["bytes"])
        self.exact = collections.defaultdict(list)
        for (engine, task, length, _), row in exact.items():
            self.exact[engine, task, length] += row["scores"]

    def lengths(self):
        return sorted({length for engine, _, length in self.exact if engine == "ballast"})

    def counted(self, engine, length):
        """Tasks that the exact cache answers better than by chance."""
        return [task for (of, task, at), scores in self.exact.items()
                if of == engine and at == length and statistics.mean(scores) >= CHANCE]

    def found(self, name, length):
        """The tasks of texts of a length that count."""
        counted = self.counted(name[0], length)
        return [t for (task, at), t in self.tasks.get(name, {}).items() if at == length and task in counted]

    def loss(self, name, length):
        """Mean over tasks of the difference, its 1.96 errors, and how many tasks that are."""
        tasks = self.found(name, length)
        if not tasks:
            return None
        half = 1.96 * math.sqrt(sum(t.error() ** 2 for t in tasks)) / len(tasks)
        return statistics.mean(t.mean() for t in tasks), half, len(tasks)


def models(only=None):
    return [Model(path, only) for path in sorted(RESULTS.glob("*.jsonl"))]


def points(mean, half):
    return f"{mean:+.0f} ± {half:.0f}".replace("-0 ", "0 ").replace("+0 ", "0 ").replace("-", "−")


def names(model, engine, length):
    """Methods of an engine: the exact cache's types first, then packed contexts, then the best at the smallest loss."""
    methods = list(dict.fromkeys(name[1] for name, of in model.tasks.items()
                                 if name[0] == engine and (name[1] != "exact" or engine != "ballast")
                                 and any(at == length for _, at in of)))

    def rank(method):
        found = [model.loss((engine, method, share), length) for share in SHARES if share >= 0.0625]
        found = [loss[0] for loss in found if loss]
        return (not method.startswith("exact"), method != "packed", -statistics.mean(found) if found else 0)

    return sorted(methods, key=rank)


def shown_name(method, engine="ballast"):
    said = [SAID[method]] if method in SAID else []
    said += [engine] if engine != "ballast" else []
    return f"`{method}`" + (f" ({', '.join(said)})" if said else "")


def cell(model, name, length):
    """What is lost at a size; the bytes before it, where the method sets them itself."""
    loss = model.loss(name, length)
    if not loss:
        return "–" if name + (length,) in model.unfit else ""
    out = points(*loss[:2])
    if name[2] is None or name[1] == "packed":
        size = statistics.mean(model.bytes[name + (length,)])
        out = f"{size:.{2 if size > 0.1 else 3}f}: {out}"
    return out


def counts(model, engine, method, length):
    """Texts, at the size with the fewest; and tasks, where others have more."""
    found = [model.found(name, length) for name in model.tasks if name[:2] == (engine, method)]
    found = [tasks for tasks in found if tasks]
    if not found:
        return "0"
    texts = min(sum(len(t.units) for t in tasks) for tasks in found)
    tasks = min(map(len, found))
    return f"{texts}" + (f", {tasks} task{'s' * (tasks > 1)}" if tasks < len(model.counted("ballast", length)) else "")


def table(model, length):
    """What each method loses against the exact cache, by size."""
    scores = ", ".join(f"{task} {100 * statistics.mean(model.exact['ballast', task, length]):.0f}"
                       for task in model.counted("ballast", length))
    counted = len(model.counted("ballast", length))
    said = (f"**{model.name}**, {length:,} tokens: mean of {counted} task{'s' * (counted > 1)}, on which the exact "
            f"cache scores {scores}.")
    shown = [s for s in SHARES if any(name[2] == s and any(at == length for _, at in of)
                                      for name, of in model.tasks.items())]
    out = [*textwrap.wrap(said, 118), "", "| method | size of its own | " + " | ".join(SHARES[s] for s in shown)
           + " | texts |", "|---" * (len(shown) + 3) + "|"]
    for engine in sorted({name[0] for name in model.tasks}):
        for method in names(model, engine, length):
            cells = [cell(model, (engine, method, share), length) for share in [None] + shown]
            found = max(len(model.found((engine, method, share), length)) for share in [None] + shown)
            if engine == "ballast" and 2 * found < counted:
                continue  # measured on too few tasks for a mean beside the others': see the table by task
            if any(c not in ("", "–") for c in cells):
                out.append(f"| {shown_name(method, engine)} | {' | '.join(cells)} | "
                           f"{counts(model, engine, method, length)} |")
    return out


def summary(only=None):
    """The first table."""
    return next((table(model, MAIN[1]) for model in models(only) if model.name == MAIN[0]), ["No results yet."])


def plain():
    """The same of the one task on which every method is measured."""
    made = summary("qa_plain")
    return made[made.index("") + 1:] if "" in made else made


def others():
    """The same of other models and lengths."""
    out = []
    for model in models():
        for length in model.lengths():
            if (model.name, length) != MAIN and model.counted("ballast", length):
                out += ["", *table(model, length)]
    return out[1:] or ["No results yet."]


def packed_share(model, length):
    """The form that the most tasks have, the largest of these."""
    return max([s for s in SHARES if s < 0.1], key=lambda s: (len(model.found(("ballast", "packed", s), length)), s))


def by_task(model, length):
    """Of one length, at an eighth or the method's own size; of packed contexts one form."""
    places = sorted({(task, at) for engine, task, at in model.exact if engine == "ballast" and at == length})
    out = ["| method | " + " | ".join(task for task, _ in places) + " |", "|---" * (len(places) + 1) + "|"]
    exact = [model.exact["ballast", *place] for place in places]
    out.append("| `exact`: score (questions) | "
               + " | ".join(f"{100 * statistics.mean(s):.0f} ({len(s)})" for s in exact) + " |")
    for method in names(model, "ballast", length):
        share = None if method.startswith("exact") else 0.125
        name = f"`{method}`"
        if method == "packed":
            share = packed_share(model, length)
            name += f" at {SHARES[share]}"
        found = [model.tasks.get(("ballast", method, share), {}).get(place) for place in places]
        out.append(f"| {name} | " + " | ".join(points(t.mean(), 1.96 * t.error()) if t else "" for t in found) + " |")
    return out


def tasks():
    """The first table by task, and the same of the model's other lengths."""
    out = []
    for model in models():
        if model.name == MAIN[0]:
            for length in sorted(model.lengths(), reverse=True):
                out += ["", f"{length:,} tokens:", "", *by_task(model, length)]
    return out[1:] or ["No results yet."]


def missing():
    """What real.sh would measure, and for how long."""
    out = ["| model | tokens | tasks | runs | time, one core |", "|---|---|---|---|---|"]
    for group in real_plan.PLAN:
        found, seconds = real_plan.outlook(group)
        if found:
            names = ", ".join(dict.fromkeys(task for task, *_ in found))
            time = "unknown" if seconds is None else real_plan.spoken(seconds)
            out.append(f"| {group.name} | {group.length:,} | {names} | {len(found)} | {time} |")
    return out if len(out) > 2 else ["Nothing."]


def page(text):
    made = {"missing": missing, "summary": summary, "plain": plain, "others": others, "tasks": tasks}
    return MADE.sub(lambda m: f"<!-- {m[1]} -->\n" + "\n".join(made[m[1]]()) + "\n<!-- end -->\n"
                    if m[1] in made else m[0], text)


def lines():
    """For the picture: of each method (its name, [(share of the bytes, mean of points lost, half)], largest first)."""
    out = []
    for model in models():
        for method in names(model, "ballast", MAIN[1]) if model.name == MAIN[0] else []:
            found = [(statistics.mean(model.bytes["ballast", method, share, MAIN[1]]),
                      *model.loss(("ballast", method, share), MAIN[1])[:2])
                     for share in [None, *SHARES] if model.loss(("ballast", method, share), MAIN[1])]
            # A method that is not measured on every task has other means.
            tasks = min((model.loss(("ballast", method, share), MAIN[1]) or (0, 0, 99))[2] for share in [None, *SHARES])
            if found and tasks == len(model.counted("ballast", MAIN[1])):
                out.append((method, sorted(found, reverse=True)))
    return out


def main():
    text = PAGE.read_text()
    made = page(text)
    picture = real_picture.drawn(lines())
    same = made == text and PICTURE.exists() and PICTURE.read_text(encoding="utf-8") == picture
    if sys.argv[1:] == ["--check"]:
        if not same:
            print("lab/docs/evidence.md or its picture are not of lab/results/real: run lab/bench/real_page.py")
        return 0 if same else 1
    PAGE.write_text(made)
    PICTURE.write_text(picture, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
