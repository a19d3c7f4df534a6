#!/usr/bin/env python3
"""What lab/bench/real.sh is to measure for lab/docs/evidence.md, and how long that takes.

    real_plan.py [FOLDER]    a line for each run that has something missing, its fields separated by tabs:
                             model's file, name, task, length, round, first text, texts, methods, shares

FOLDER (or MODELS) has the models' files, as ballast names them; those that are not there are said on stderr, with the
time that all takes. MODEL (a file) measures that one instead, with NAME, TASKS, METHODS, SHARES, LENGTH and ROUNDS of
TEXTS (5; of SHORT ones 2 documents).
"""
import collections
import os
import pathlib
import statistics
import sys

import real_rows

ROOT = pathlib.Path(__file__).resolve().parents[2]
RESULTS = ROOT / "lab/results/real"
DOCUMENTS, ALL_DOCUMENTS = 2, 8
ANSWER = 16  # tokens of an answer, about
SHORT = ("qa_plain", "qa_shifted")  # tasks on documents that are as long as they are, whatever the length
DOCUMENT = 850  # tokens of one of them
STORED = "exact;exact:type=q4;exact:type=q4/q2;packed:1/16;packed:1/32;packed:1/64"
METHODS = STORED + ";calibrated;replay;kvzip-plus;snapkv;h2o;streaming-llm;uniform"
FEW = "exact;exact:type=q4;packed:1/32;replay;calibrated;kvzip-plus;h2o;streaming-llm;uniform"

TEXTS = 5
Group = collections.namedtuple("Group", "name length tasks rounds texts methods shares")
PLAN = [
    Group("qwen2.5-coder-0.5b", 4096, "qa_plain niah_multikey_1 niah_multivalue vt fwe code_constant", 4, 5, METHODS,
          "1/4,1/8,1/16"),
    Group("qwen2.5-coder-0.5b", 2048, "functions tools qa_shifted niah_multivalue code_constant", 4, 2, FEW, "1/8"),
    Group("qwen2.5-coder-0.5b", 8192, "niah_multivalue code_constant", 1, 5, FEW, "1/8"),
    Group("smollm2-135m", 2048, "qa_plain niah_multivalue", 1, 5, FEW, "1/8"),
    Group("qwen2.5-coder-1.5b", 4096, "qa_plain niah_multikey_1 niah_multivalue vt fwe code_constant", 1, 5, METHODS,
          "1/4,1/8"),
]


def rows_path(name):
    return RESULTS / f"{name}.jsonl"


def seconds_of(rows, length):
    """Of reading a text of `length` tokens, compressing it by a method, and a token of an answer: medians of `rows`."""
    by_length = collections.defaultdict(list)
    for row in rows:
        if row.get("read"):
            by_length[DOCUMENT if row["task"] in SHORT else row["length"]].append(row)
    if not by_length:
        return None
    near = min(by_length, key=lambda n: abs(n - length))
    read = statistics.median(r["read"] for r in by_length[near]) * length / near
    compress = collections.defaultdict(list)
    for row in by_length[near]:
        compress[row["method"]].append(row["compress"] * length / near)
    return read, {m: statistics.median(s) for m, s in compress.items()}, statistics.median(
        r["token"] for r in by_length[near])


def run_seconds(measured, methods, shares, contexts, questions):
    """Of one run. Methods of one storage type share a reading; a share of its own makes no other."""
    read, compress, token = measured
    out = read * (1 + sum(m.startswith("exact:type") for m in methods))
    for method in methods:
        sizes = len(real_rows.shares_of(method, shares))
        out += sizes * (compress.get(method, 0) + questions * ANSWER * token)
    return contexts * out


def texts_of(task, texts):
    """How many a run reads."""
    return DOCUMENTS if task in SHORT else texts


def jobs(group):
    """(task, round, first, contexts, missing methods) of a group, all tasks' first texts before any has more."""
    shares = group.shares.split(",")
    for number in range(group.rounds):
        for task in group.tasks.split():
            contexts = texts_of(task, group.texts)
            first = contexts * number + 1
            if task in SHORT and first > ALL_DOCUMENTS:
                continue
            missing = real_rows.missing(rows_path(group.name), task, group.length, first, group.methods.split(";"),
                                        shares)
            if missing:
                yield task, number, first, contexts, missing


def given():
    """The groups to measure and the models' files."""
    model = os.environ.get("MODEL")
    if not model:
        folder = pathlib.Path((sys.argv[1:] or [os.environ.get("MODELS", "models")])[0])
        return PLAN, {group.name: folder / f"{group.name}.gguf" for group in PLAN}
    name = os.environ.get("NAME", pathlib.Path(model).stem)
    group = Group(name, int(os.environ.get("LENGTH", 4096)), os.environ.get("TASKS", PLAN[0].tasks),
                  int(os.environ.get("ROUNDS", 4)), int(os.environ.get("TEXTS", TEXTS)), os.environ.get("METHODS", METHODS),
                  os.environ.get("SHARES", "1/4,1/8,1/16"))
    return [group], {name: pathlib.Path(model)}


def spoken(seconds):
    return f"{seconds / 3600:.1f} hours" if seconds > 5400 else f"{max(1, seconds / 60):.0f} minutes"


def outlook(group):
    """A group's jobs, and their seconds; None: nothing of the model was measured yet."""
    found, rows, shares = list(jobs(group)), real_rows.read(rows_path(group.name)), group.shares.split(",")
    if not rows:
        return found, None
    seconds = 0
    for task, _, _, contexts, missing in found:
        short = task in SHORT
        measured = seconds_of(rows, DOCUMENT if short else group.length)
        seconds += run_seconds(measured, missing, shares, contexts, 10 if short else 4)
    return found, seconds


def main():
    groups, files = given()
    for group in groups:
        found, seconds = outlook(group)
        there = files[group.name].exists()
        if found:
            time = "an unknown time, as nothing of it was measured yet" if seconds is None else f"about {spoken(seconds)}"
            print(f"{group.name}, {group.length} tokens: {len(found)} runs missing, {time}"
                  + ("" if there else f"; left out: no {files[group.name]}"), file=sys.stderr)
        for task, number, first, contexts, missing in found if there else []:
            print(files[group.name], group.name, task, group.length, number, first, contexts, ";".join(missing),
                  group.shares, sep="\t")


if __name__ == "__main__":
    main()
