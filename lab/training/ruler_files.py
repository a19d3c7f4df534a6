"""Writes the test questions of the tasks in RULER's wording as RULER's files, for `ballast eval ruler`.

    python3 ruler_files.py FOLDER --length 4096 --count 50
    ballast eval ruler -m ../models/ballast-mini.gguf --data FOLDER --methods exact

A file's name is RULER's of the task; its words are made up here. An answer of several values has each as a reference.
"""

import argparse
import json
import os
import re

import sentencepiece

import data

# Our task: RULER's name of it.
FILES = {"needles": "niah_single_2", "multivalue": "niah_multivalue", "multiquery": "niah_multiquery",
         "variables": "vt", "common": "cwe", "frequent": "fwe", "facts": "qa_1"}


def references(task, answer):
    """The values that an answer lists."""
    answer = answer.strip()
    if task == "variables":
        return answer.split()
    if task == "common":
        return re.sub(r"\d+\. ", "", answer).split()
    if task in ("multivalue", "multiquery", "frequent"):
        return answer.replace(", and ", ", ").split(", ")
    return [answer]


def records(encoder, task, length, count):
    for number in range(count):
        prompt, answer = data.test_question(task, encoder, length, number)
        text = encoder.processor.decode
        answer = text([token for token in answer if token != encoder.processor.piece_to_id(data.END)])
        yield {"index": number, "input": text(prompt), "outputs": references(task, answer), "length": len(prompt)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("--vocabulary", default=os.path.join(os.path.dirname(__file__), "vocabulary.model"))
    parser.add_argument("--length", type=int, default=4096)
    parser.add_argument("--count", type=int, default=50)
    arguments = parser.parse_args()
    encoder = data.Encoder(sentencepiece.SentencePieceProcessor(model_file=arguments.vocabulary))
    os.makedirs(arguments.folder, exist_ok=True)
    for task, name in FILES.items():
        with open(os.path.join(arguments.folder, f"{name}.jsonl"), "w", encoding="utf-8") as file:
            for record in records(encoder, task, arguments.length, arguments.count):
                file.write(json.dumps(record) + "\n")


if __name__ == "__main__":
    main()
