"""Scores of a peer's answers to the questions of lab/bench/real.sh, as lab/experiments/metrics has them."""
import json
import re

MOST_TOKENS = {"niah": 128, "vt": 30, "cwe": 120, "fwe": 50, "qa": 32, "arithmetic": 256, "problems": 256,
               "code": 64, "tools": 96}


def most_tokens(task):
    """Of an answer."""
    return MOST_TOKENS[re.match("[a-z]+", task)[0]]


def call(text):
    """Name and arguments of the first JSON object in a text; None where there is none."""
    try:
        found, _ = json.JSONDecoder().raw_decode(text[text.index("{"):])
    except ValueError:
        return None
    return found.get("name"), found.get("arguments")


def score(task, answer, outputs):
    """As lab/experiments/metrics has it: references that the answer holds; of qa, whether any."""
    if task.startswith(("arithmetic", "problems", "code")):
        return float(re.findall("[0-9]+", answer)[-1:] == outputs)
    if task == "tools":
        return float(call(answer) == call(outputs[0]))
    found = [output.lower() in answer.lower() for output in outputs]
    return float(any(found)) if task.startswith("qa") else sum(found) / len(found)
