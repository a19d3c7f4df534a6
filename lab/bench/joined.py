#!/usr/bin/env python3
"""Questions about documents: all read together, and each read alone, then joined.

    joined.py MODEL DOCUMENTS [--ballast build/ballast] [--documents 8] [--questions 5] [--cache 1/8] [--reverse]

DOCUMENTS is ../shared/data/plain/documents.jsonl. The first `--questions` of each document are asked behind all of
them, in this order or the last document first. An answer is right if it contains one of accept, in lower case and
without commas. Prints a row each: read together, that is the same tokens read behind the first document; joined, with
0, 8 and 15% of the later documents' tokens read again; joined at `--cache`; with the answers that differ from the
first row's.
"""
import argparse
import json
import pathlib
import subprocess
import tempfile


def ballast(options, *arguments):
    command = [options.ballast, *arguments, "-m", options.model, "-q", "--threads", options.threads]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def ask(options, contexts, again, questions, folder):
    """Whether each question is answered rightly."""
    listed = folder / "questions"
    listed.write_text("".join(q["q"] + "\n" for q in questions), encoding="utf-8")
    arguments = [part for path in contexts for part in ("--context", path)]
    out = json.loads(ballast(options, "run", *arguments, "--read-again", str(again), "--questions", listed,
                             "--temperature", "0", "-n", "48", "--json"))
    answers = [one["text"].lower().replace(",", "") for one in out["answers"]]
    return [any(accept in answer for accept in q["accept"]) for q, answer in zip(questions, answers, strict=True)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("documents", type=pathlib.Path)
    parser.add_argument("--ballast", default="build/ballast")
    parser.add_argument("--documents", dest="count", type=int, default=8)
    parser.add_argument("--questions", type=int, default=5)
    parser.add_argument("--cache", default="1/8")
    parser.add_argument("--reverse", action="store_true")
    parser.add_argument("--threads", default="2")
    options = parser.parse_args()
    lines = options.documents.read_text(encoding="utf-8").splitlines()
    documents = [json.loads(line) for line in lines][:options.count]
    questions = [q for d in documents for q in d["questions"][:options.questions]]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        saved = {}
        for method in ((), ("--cache", options.cache)):
            saved[method] = []
            for document in documents:
                text = folder / f"{document['name']}.txt"
                text.write_text(document["text"], encoding="utf-8")
                saved[method].append(folder / f"{document['name']}{len(method)}.cache")
                ballast(options, "run", "--context", text, *method, "--save-cache", saved[method][-1])
            if options.reverse:
                saved[method].reverse()
        together = None
        for method, again in (((), 100), ((), 0), ((), 8), ((), 15), (("--cache", options.cache), 0)):
            found = ask(options, saved[method], again, questions, folder)
            together = together or found
            lost = sum(a and not b for a, b in zip(together, found))
            more = sum(b and not a for a, b in zip(together, found))
            title = f"joined{f' at {options.cache}' if method else ''}, {again}% read again"
            print(f"{title}: {sum(found)} of {len(questions)}, {lost} lost and {more} found", flush=True)


if __name__ == "__main__":
    main()
