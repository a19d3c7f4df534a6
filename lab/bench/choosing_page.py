#!/usr/bin/env python3
"""Writes the tables of lab/docs/choosing.md from lab/results/choosing.json.

    choosing_page.py --from FOLDER  first makes the JSON of FOLDER/TASK-GROUP.json (lab/bench/choosing.sh)
    choosing_page.py                writes the tables
    choosing_page.py --check        says where the page differs; exits with 1 if it does

A table stands between `<!-- NAME -->` and `<!-- end -->`.
"""
import json
import math
import pathlib
import re
import sys

from experiments_page import MADE, ROOT

PAGE = ROOT / "lab/docs/choosing.md"
DATA = ROOT / "lab/results/choosing.json"
TASKS = {"lines": "lines", "records": "records", "needle": "needles"}
SIZES = {"lines": "lines", "records": "length", "needle": "length"}
SHARES = {0.25: "1/4", 0.125: "1/8", 0.0625: "1/16", 0.03125: "1/32"}


def gather(folder):
    """Questions, right answers and bytes of every method and share, each task's sizes together."""
    found, commands = {}, []
    for path in sorted(folder.glob("*-*.json")):
        result = json.loads(path.read_text())
        task = result["experiment"]
        group = path.stem.split("-")[1]
        command = re.sub(r" -q --threads \d+ --json=\S+$", "", result["command"])
        commands.append({"task": task, "group": group, "command": command})
        for row in result["results"]:
            if row[SIZES[task]] == "all" or row["method"] == "exact" and group != "exact":
                continue
            asked = row["samples"]
            name = row["method"] + (", stream" if group == "stream" else "")
            share = SHARES.get(row.get("share"), "own")
            cell = found.setdefault((name, share), {})
            at = cell.setdefault(task, {"asked": 0, "right": 0, "fits": True, "bytes": []})
            at["asked"] += asked
            if not row.get("fits", True):
                at["fits"] = False
                continue
            at["right"] += round(row["score"] * asked)
            at["bytes"].append(row["cache_bytes"] / row["exact_bytes"])
    rows = []
    for (name, share), cell in found.items():
        for task, at in cell.items():
            held = at.pop("bytes")
            at["bytes"] = round(sum(held) / len(held), 4) if held else None
        rows.append({"method": name, "share": share, "tasks": cell})
    order = ["replay", "exact", "stream", "others"]
    commands.sort(key=lambda c: (order.index(c["group"]), list(TASKS).index(c["task"])))
    return {"rows": rows, "commands": commands}


def wilson(right, asked, z=1.959964):
    p = right / asked
    middle = (p + z * z / (2 * asked)) / (1 + z * z / asked)
    half = z / (1 + z * z / asked) * math.sqrt(p * (1 - p) / asked + z * z / (4 * asked * asked))
    return max(0.0, middle - half), min(1.0, middle + half)


def total(row):
    """Right answers of all tasks, or None where a size of one does not fit."""
    cells = row["tasks"].values()
    if not all(c["fits"] for c in cells):
        return None
    return sum(c["right"] for c in cells), sum(c["asked"] for c in cells)


def cell_text(row):
    if row is None:
        return ""
    found = total(row)
    if found is None:
        return "–"
    low, high = wilson(*found)
    return f"{found[0] / found[1]:.2f} ({low:.2f}–{high:.2f})"


def accuracy(data):
    by = {(r["method"], r["share"]): r for r in data["rows"]}
    names = list(dict.fromkeys(r["method"] for r in data["rows"]))

    def rank(name):
        row = next(by[name, s] for s in ("1/8", "1/4", "own") if (name, s) in by)
        found = total(row)
        return found[0] / found[1] if found else 0

    def held(name):
        shares = [c["bytes"] for c in by[name, "own"]["tasks"].values()]
        return sum(shares) / len(shares)

    stored = sorted((n for n in names if (n, "own") in by), key=lambda n: -held(n))
    small = sorted((n for n in names if n not in stored), key=lambda n: (not n.startswith("replay"), n == "replay, stream", -rank(n)))
    out = ["| method | bytes of its own | 1/4 | 1/8 | 1/16 | 1/32 |", "|---|---|---|---|---|---|"]
    for name in stored:
        share = held(name)
        share = "1" if name == "exact" else f"{share:.2f}"
        out.append(f"| `{name}` | {share}: {cell_text(by[name, 'own'])} | | | | |")
    for name in small:
        cells = " | ".join(cell_text(by.get((name, s))) for s in SHARES.values())
        shown = name.split(",")
        shown = f"`{shown[0]}`" + "".join("," + rest for rest in shown[1:])
        out.append(f"| {shown} | | {cells} |")
    return out


def losses(data):
    by = {(r["method"], r["share"]): r["tasks"] for r in data["rows"]}
    columns = [("replay", s) for s in SHARES.values()] + [("replay, stream", "1/8")]
    titles = list(SHARES.values()) + ["stream, 1/8"]
    out = ["| | exact | " + " | ".join(titles) + " |", "|---" * (len(titles) + 2) + "|"]

    def share(cell):
        return cell["right"] / cell["asked"]

    for task, title in TASKS.items():
        exact = share(by["exact", "own"][task])
        lost = [f"{exact - share(by[c][task]):.2f}".replace("-0.00", "0.00") if c in by else "" for c in columns]
        out.append(f"| {title} | {exact:.2f} | " + " | ".join(lost) + " |")
    ratios = []
    for c in columns:
        parts = [share(by[c][t]) / share(by["exact", "own"][t]) for t in TASKS] if c in by else []
        ratios.append(f"{sum(parts) / len(parts):.2f}" if parts else "")
    out.append("| mean of what is left, of exact | 1 | " + " | ".join(ratios) + " |")
    return out


def commands(data):
    """The three tasks' commands, and what the other groups give in place of their ends."""
    first = [c["command"] for c in data["commands"] if c["group"] == "replay"]
    ends = {c["group"]: c["command"].split("--question-later ")[1] for c in data["commands"]}
    out = [""] + ["    " + c.replace(" --question-later ", " --question-later \\\n        ") for c in first]
    out += ["", "and the same with", ""]
    return out + ["    … " + end for group, end in ends.items() if group != "replay"]


def page(text, data):
    made = {"accuracy": accuracy, "losses": losses, "commands": commands}
    return MADE.sub(lambda m: f"<!-- {m[1]} -->\n" + "\n".join(made[m[1]](data)) + "\n<!-- end -->\n", text)


def main():
    if sys.argv[1:2] == ["--from"]:
        DATA.write_text(json.dumps(gather(pathlib.Path(sys.argv[2])), indent=1) + "\n")
    elif sys.argv[1:] not in ([], ["--check"]):
        print("usage: choosing_page.py [--from FOLDER | --check]", file=sys.stderr)
        return 2
    text = PAGE.read_text()
    made = page(text, json.loads(DATA.read_text()))
    if sys.argv[1:] == ["--check"]:
        if made != text:
            print("lab/docs/choosing.md: its tables are not those of lab/results/choosing.json: run "
                  "lab/bench/choosing_page.py")
        return 1 if made != text else 0
    PAGE.write_text(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
