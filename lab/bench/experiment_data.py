#!/usr/bin/env python3
"""Data for lab/bench/experiments.sh, in the layouts of the benchmarks that it is short of.

    experiment_data.py DATA OUT

DATA is a folder with the benchmarks' own files (longeval/, longbench/, choice/) and plain/, eight documents with
ten questions each. Into OUT go, beside links to what DATA has of longbench/ and choice/ (but multi_news, whose answers are long):

  prose.txt                        English prose, of Debian's package debian-handbook: for rows on attention
  longeval/N_lines.jsonl           records of N lines cut to a quarter, the line that is asked for among them; those
                                   of 400 lines are the first two of 300 together, cut alike
  longbench/multifieldqa_en.jsonl  the questions on plain/, in that task's layout
  texts/                           links to longeval/ and longbench/multi_news.jsonl whole: for rows on attention

A task that DATA has itself is not made. choice/piqa.json, PiQA as LLM-Adapters has it, is written in the data set's own
layout.
"""
import json
import pathlib
import random
import re
import sys

import real_data

PROSE = 48000


def write(path, records):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


def records(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]


def cut_record(prompt, asked, lines, rng):
    """A prompt of LongEval with so many of its lines, in their order."""
    pieces = prompt.splitlines(keepends=True)
    places = [i for i, piece in enumerate(pieces) if piece.startswith("line ") and asked != piece]
    kept = set(rng.sample(places, lines - 1))
    return "".join(p for i, p in enumerate(pieces) if i not in places or i in kept)


def cut_lines(data, out):
    for lines in (200, 300, 400):
        source = data / f"longeval/{min(lines, 300)}_lines.jsonl"
        if not source.exists():
            continue
        rng = random.Random(f"experiments/{lines}")
        made = []
        found = records(source)
        for i, record in enumerate(found):
            prompt = record["prompt"]
            if lines == 400:  # with lines of the next record, its names being others
                more = [x for x in found[(i + 1) % len(found)]["prompt"].splitlines(keepends=True)
                        if x.startswith("line ") and x.split(":")[0] + ":" not in prompt]
                at = prompt.rindex("\nNow the record is over")
                prompt = prompt[:at] + "".join(more[:100]) + prompt[at:]
            prompt = cut_record(prompt, record["correct_line"], lines // 4, rng)
            made.append({"prompt": prompt, "expected_number": record["expected_number"], "num_lines": lines // 4,
                         "random_idx": record["random_idx"]})
        write(out / f"longeval/{lines}_lines.jsonl", made)


def plain_questions(documents):
    """One of each document, then the next of each: the first N are of as many documents as there are."""
    for number in range(max(len(d["questions"]) for d in documents)):
        for document in documents:
            question = document["questions"][number]
            yield {"input": question["q"], "context": document["text"], "answers": question["accept"],
                   "dataset": "multifieldqa_en", "language": "en", "all_classes": None,
                   "length": len(document["text"].split()), "_id": f"{document['name']}-{number}"}


def piqa_of(record):
    """A question of LLM-Adapters' test file in the data set's own layout."""
    text = record["instruction"][:record["instruction"].rindex("Answer format")]
    head, *solutions = re.split(r"Solution\d: ", text)
    return {"goal": head.split(": ", 1)[1].strip(), "sol1": solutions[0].strip(), "sol2": solutions[1].strip(),
            "label": int(record["answer"][-1]) - 1}


def link(paths, folder):
    folder.mkdir(parents=True, exist_ok=True)
    for path in paths:
        target = folder / path.name
        target.unlink(missing_ok=True)
        target.symlink_to(path.resolve())


def main():
    data, out = map(pathlib.Path, sys.argv[1:])
    out.mkdir(parents=True, exist_ok=True)
    real_data.prose(out / "prose.txt")
    text = (out / "prose.txt").read_text(encoding="utf-8")
    (out / "prose.txt").write_text(text[:text.rindex("\n", 0, PROSE) + 1], encoding="utf-8")
    cut_lines(data, out)
    news = list(data.glob("longbench/multi_news.jsonl"))
    link(set(data.glob("longbench/*.jsonl")) - set(news), out / "longbench")
    link(data.glob("choice/*.jsonl"), out / "choice")
    link(news, out / "texts/longbench")
    link(data.glob("longeval/*.jsonl"), out / "texts/longeval")
    documents = data / "plain/documents.jsonl"
    if documents.exists() and not (out / "longbench/multifieldqa_en.jsonl").exists():
        write(out / "longbench/multifieldqa_en.jsonl", plain_questions(records(documents)))
    piqa = data / "choice/piqa.json"
    if piqa.exists() and not (out / "choice/piqa.jsonl").exists():
        write(out / "choice/piqa.jsonl", map(piqa_of, json.loads(piqa.read_text(encoding="utf-8"))))


if __name__ == "__main__":
    main()
