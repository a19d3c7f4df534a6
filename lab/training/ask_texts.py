"""Asks a model the questions on the texts of texts/ and examples/, which people might ask, and counts by text what is
right, and what the engine marks as perhaps wrong.

    python3 ask_texts.py ../models/ballast-mini.gguf [--show]

An answer is right that holds the one expected and is no more than thirty characters longer. Letter, minutes and
expedition were written with the wordings of the training in mind; mail, tale, notice, diary and museum without.
The engine is the environment's BALLAST, or build/ballast of the project.
"""

import argparse
import json
import os
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
GROUPS = {
    "examples": [os.path.join(HERE, "..", "..", "examples", name) for name in ("story", "record")],
    "in known wordings": [os.path.join(HERE, "texts", name) for name in ("letter", "minutes", "expedition")],
    "in free wordings": [os.path.join(HERE, "texts", name) for name in ("mail", "tale", "notice", "diary", "museum")],
}


def is_right(answer, expected):
    return expected.lower() in answer.lower() and len(answer) <= len(expected) + 30


def ask(binary, model, base):
    """Question, answer, the answer expected and whether the engine was unsure, of every question."""
    said = subprocess.run([binary, "run", "-m", model, "--context", base + ".txt", "--questions",
                           base + "-questions.txt", "--json", "-q"], capture_output=True, text=True)
    if said.returncode:
        raise SystemExit(said.stderr.strip())
    with open(base + "-answers.txt", encoding="utf-8") as file:
        expected = file.read().splitlines()
    answers = json.loads(said.stdout)["answers"]
    if len(answers) != len(expected):
        raise SystemExit(f"{base}-answers.txt: {len(expected)} answers to {len(answers)} questions")
    return [(a["question"], a["text"].strip(), e, a["unsure"]) for a, e in zip(answers, expected)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--show", action="store_true", help="every answer")
    arguments = parser.parse_args()
    binary = os.environ.get("BALLAST", os.path.join(HERE, "..", "..", "build", "ballast"))
    if not os.access(binary, os.X_OK):
        raise SystemExit(f"{binary} is not there; ./test.sh builds it, or BALLAST names another")
    print(f"{'texts':20}{'right':>10}{'unmarked: right':>18}{'marked: right':>16}")
    for group, bases in GROUPS.items():
        asked = [row for base in bases for row in ask(binary, arguments.model, base)]
        right = [is_right(answer, expected) for _, answer, expected, _ in asked]
        marked = [unsure for *_, unsure in asked]

        def share(kept):
            return f"{sum(r for r, k in zip(right, kept) if k)} of {sum(kept)}"

        print(f"{group:20}{share([True] * len(asked)):>10}{share([not m for m in marked]):>18}{share(marked):>16}")
        for (question, answer, expected, unsure), good in zip(asked, right):
            if arguments.show:
                print(f"  {'right' if good else 'wrong'}{', marked' if unsure else '        '}  {question}  "
                      f"{answer[:60]!r}{'' if good else f'  ({expected})'}")


if __name__ == "__main__":
    main()
