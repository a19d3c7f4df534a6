#!/usr/bin/env python3
"""Keeps what lab/bench/real.sh and lab/bench/peers/kvpress_answers.py measure: lab/results/real/MODEL.jsonl.

    real_rows.py missing FILE TASK LENGTH FIRST METHODS SHARES   methods of which a line is missing, with ';'
    real_rows.py add FILE TASK LENGTH FIRST CONTEXTS RESULT      adds the lines of a result of `ballast eval ruler`

A line is one method at one size on some texts of one task:

    task, length, first   the file's name; the tokens that prompts may have; the number of the first text
    contexts              texts that were read; each has as many questions, which are no independent samples
    engine, method, share ballast or a peer; share of the exact cache that was asked for (null: the method's own)
    scores                of each question, 0 to 1
    bytes                 the cache's, as a share of the exact bf16 cache
    read, compress, token seconds: for the prompt; to compress it; for a token of the answer; left out where other
                          work on the machine slowed them
    processor             that the seconds are of
"""
import json
import pathlib
import re
import sys

TYPES = {"1/2": 0.5, "1/4": 0.25, "1/8": 0.125, "1/16": 0.0625, "1/32": 0.03125, "1/64": 0.015625}
OWN_SIZE = ("exact", "packed:")  # methods that take no share


def read(path):
    """All lines of a file; none where there is no file."""
    path = pathlib.Path(path)
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def processor():
    text = pathlib.Path("/proc/cpuinfo").read_text()
    name = re.search(r"model name\s*: (.*)", text)
    sets = [s for s in ("amx_tile", "avx512f", "avx2") if re.search(rf"\b{s}\b", text)]
    return f"{name[1] if name else 'unknown'}, {sets[0] if sets else 'no avx2'}"


def key(row):
    return row["task"], row["length"], row["first"], row["engine"], row["method"], row["share"]


def append(path, rows):
    """Adds rows that are not there yet. Says where the exact cache answers otherwise than in the row that is there."""
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    before = {key(row): row for row in read(path)}
    for row in rows:
        old = before.get(key(row), row)
        if row["method"] == "exact" and old["scores"] != row["scores"]:
            print(f"{path}: {row['task']} from {row['first']}: the exact cache scores {sum(row['scores']):g} in place of "
                  f"{sum(old['scores']):g}: other texts, or another engine", file=sys.stderr)
    there = set(before)
    with path.open("a") as file:
        for row in rows:
            if key(row) not in there:
                file.write(json.dumps(row) + "\n")


def shares_of(method, shares):
    return [None] if method.startswith(OWN_SIZE) else [TYPES[share] for share in shares]


def missing(path, task, length, first, methods, shares, engine="ballast"):
    """Those of `methods` of which a line is missing; with the exact cache, where any is."""
    there = {key(row) for row in read(path)}
    out = [m for m in methods if any((task, length, first, engine, m, s) not in there
                                     for s in shares_of(m, shares))]
    return out


def rows_of(result, task, length, first, contexts):
    """The lines of a result of `ballast eval ruler`."""
    out = []
    for row in result["results"]:
        if row.get("task", task) == "all":
            continue
        line = {"task": task, "length": length, "first": first, "contexts": contexts, "engine": "ballast",
                "method": row["method"], "share": row.get("share"), "scores": row.get("scores")}
        if row.get("fits", True):
            line |= {"bytes": round(row["cache_bytes"] / row["exact_bytes"], 4), "read": round(row["read_seconds"], 3),
                     "compress": round(row["compress_seconds"], 3), "token": round(row["seconds_per_token"], 5)}
        out.append(line | {"processor": processor()})
    return out


def main():
    command, arguments = sys.argv[1:2], sys.argv[2:]
    if command == ["missing"] and len(arguments) == 6:
        path, task, length, first, methods, shares = arguments
        print(";".join(missing(path, task, int(length), int(first), methods.split(";"), shares.split(","))))
    elif command == ["add"] and len(arguments) == 6:
        path, task, length, first, contexts, result = arguments
        found = json.loads(pathlib.Path(result).read_text())
        append(path, rows_of(found, task, int(length), int(first), int(contexts)))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
