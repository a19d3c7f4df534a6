#!/usr/bin/env python3
"""Texts and questions for lab/bench/experiments.sh, in wordings that the default model knows.

  record.txt        a record of lines, as LongEval has them: for capture
  asked.txt         a record of lines, then questions on it with their answers: half of the tokens each
  stream.txt        short records, questions and answers, one after another
  openbookqa.jsonl  needles in a haystack, four numbers to choose from, in the layout of OpenBookQA
  winogrande.jsonl  a record of keys and values, two keys to choose from, in the layout of Winogrande

The data sets themselves ask for knowledge that a model of two million weights has not. The same
commands take their files.
"""

import json
import pathlib
import random
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "training"))
import finding  # noqa: E402  (wordings and words of the training data)


def text_of(parts):
    return "".join(chunk for chunk, _ in parts)


def lines(rng, count):
    keys = finding.distinct(lambda r: "-".join(finding.line_key(r)), count, rng)
    return {key: finding.register(rng) for key in keys}


def record_text(record):
    body = "".join(f"line {key}{finding.CONTENT_IS}{value}>\n" for key, value in record.items())
    return "".join(finding.HEADER) + "\n\n" + body + "\n" + finding.RECORD_OVER


def question(key):
    return f"{finding.TELL_ME} {key}{finding.NEED_NUMBER} "


def asked(rng, record_lines, questions):
    record = lines(rng, record_lines)
    return record_text(record) + "".join(
        question(key) + record[key] + "\n" for key in rng.choices(list(record), k=questions))


def haystack(rng, sentences, needles):
    """Sentences of filler with needles among them."""
    hay = [text_of(finding.sentence(rng)).strip() for _ in range(sentences)]
    for needle in needles:
        hay.insert(rng.randrange(len(hay) + 1), needle)
    return " ".join(hay)


def needle_choice(rng):
    keys = finding.distinct(finding.noun, 4, rng)
    values = finding.distinct(lambda r: finding.digits(r, 7, 7), 4, rng)
    hay = haystack(rng, 20, [f"{finding.ONE_OF['numbers']} {k} is: {v}." for k, v in zip(keys, values)])
    right = rng.randrange(4)
    stem = ("".join(finding.HIDDEN["numbers"]) + "\n" + hay + "\n" + finding.WHAT_SPECIAL["numbers"] + " " + keys[right]
            + finding.MENTIONED + finding.THE_SPECIAL["numbers"] + " " + keys[right] + finding.MENTIONED + " is")
    return {"question_stem": stem, "choices": {"text": values, "label": list("ABCD")}, "answerKey": "ABCD"[right]}


def key_choice(rng):
    """The value comes after the key that is to be chosen. (Lines would not do: their wording holds a blank.)"""
    keys = finding.distinct(lambda r: finding.adjective(r) + "-" + finding.noun(r), 40, rng)
    record = {key: finding.digits(rng, 6, 6) for key in keys}
    chosen = rng.sample(keys, 2)
    right = rng.randrange(2)
    body = "".join(f'"{key}": "{value}",\n' for key, value in record.items())
    sentence = (finding.JSON_HEADER + "\n{" + body + "}\n" + finding.JSON_KEY + '_"\n' + finding.JSON_VALUE
                + record[chosen[right]] + '"')
    return {"sentence": sentence, "option1": chosen[0], "option2": chosen[1], "answer": str(right + 1)}


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    (out / "record.txt").write_text(record_text(lines(random.Random("experiments/record"), 190)) + "\n")
    (out / "asked.txt").write_text(asked(random.Random("experiments/asked"), 95, 130))
    rng = random.Random("experiments/stream")
    (out / "stream.txt").write_text("".join(asked(rng, 12, 8) for _ in range(80)))
    for name, make in (("openbookqa", needle_choice), ("winogrande", key_choice)):
        rng = random.Random(f"experiments/{name}")
        (out / f"{name}.jsonl").write_text("".join(json.dumps(make(rng)) + "\n" for _ in range(200)))


if __name__ == "__main__":
    main()
