#!/usr/bin/env python3
"""The task `functions` of lab/bench/real.sh: a model writes functions of a module that it has read, and they run.

    real_functions.py make FILE TOKENS FIRST N   N modules of up to so many tokens; four functions asked of each
    real_functions.py grade FILE RESULT          puts the scores of a result of `ballast eval ruler` on FILE: 1 where a
                                                 function returns what the module's does for CALLS pairs of numbers
"""
import json
import pathlib
import random
import re
import subprocess
import sys

from real_data import CHARACTERS, QUESTIONS

CALLS = 20
SECONDS, MEMORY = 5, 256 << 20  # that a written function may take
BODIES = ("    total = {0} * {p} + {q}\n    if total > {1}:\n        return total - {r}\n    return {1} + {s}\n",
          "    low = min({0}, {p})\n    high = max({1}, {q})\n    return high * {r} - low * {s}\n",
          "    if {0} % {p} == {q} % {p}:\n        return {1} + {r}\n    return {0} - {1} * {s}\n",
          "    count = 0\n    for step in range({p}):\n        count += {0} * step + {q}\n    return count - {1} * {r}\n")
WORDS = ("amount price weight height width length hours days rooms seats tickets crates miles litres points "
         "pages turns rows plates").split()

KINDS = "amber brisk calm dusty early frozen gentle hollow iron jolly keen lucky misty noble olive proud".split()
THINGS = ("anchor basket candle drum engine falcon garden hammer island jacket kettle ladder mirror needle oven "
          "pillow").split()


def function(draws, name):
    first, second = draws.sample(WORDS, 2)
    numbers = {k: draws.randint(2, 99) for k in "qrs"} | {"p": draws.randint(3, 19)}
    return f"def {name}({first}, {second}):\n" + draws.choice(BODIES).format(first, second, **numbers)


def make(out, tokens, first, count):
    lines = []
    for seed in range(first, first + count):
        draws = random.Random(f"functions {seed}")
        head = "This is a module.\n\n```python\n"
        module = {}
        while len(head) + sum(map(len, module.values())) < CHARACTERS * tokens - 300:
            name = f"{draws.choice(KINDS)}_{draws.choice(THINGS)}"
            module[name] = function(draws, name) + "\n\n"
        text = head + "".join(module.values()).rstrip() + "\n```"
        for name in draws.sample(sorted(module), QUESTIONS):
            record = {"input": f"{text}\n\nWrite the function {name} again, as it is in the module.",
                      "answer_prefix": f"```python\ndef {name}(", "outputs": [module[name].rstrip()]}
            lines.append(json.dumps({"index": len(lines)} | record) + "\n")
    out.write_text("".join(lines), encoding="utf-8")


def returned(source, name):
    """What the function returns for CALLS pairs of numbers, as text; None where it does not run."""
    draws = random.Random(name)
    pairs = [(draws.randint(-50, 200), draws.randint(-50, 200)) for _ in range(CALLS)]
    program = (f"import resource\nresource.setrlimit(resource.RLIMIT_AS, ({MEMORY}, {MEMORY}))\n"
               f"{source}\nprint([{name}(a, b) for a, b in {pairs}])\n")
    try:
        ran = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return None
    return ran.stdout if ran.returncode == 0 else None


def right(record, answer):
    name = re.match(r"def (\w+)", record["outputs"][0])[1]
    written = (record["answer_prefix"] + answer).removeprefix("```python\n").partition("```")[0]
    found = returned(written, name)
    return float(found is not None and found == returned(record["outputs"][0], name))


def grade(texts, path):
    records = list(map(json.loads, texts.read_text(encoding="utf-8").splitlines()))
    result = json.loads(path.read_text(encoding="utf-8"))
    for row in result["results"]:
        if row.get("answers"):
            row["scores"] = [right(record, answer) for record, answer in zip(records, row["answers"], strict=True)]
            row["score"] = sum(row["scores"]) / len(records)
    path.write_text(json.dumps(result), encoding="utf-8")


def main():
    if len(sys.argv) == 6 and sys.argv[1] == "make":
        make(pathlib.Path(sys.argv[2]), *map(int, sys.argv[3:]))
    elif len(sys.argv) == 4 and sys.argv[1] == "grade":
        grade(*map(pathlib.Path, sys.argv[2:]))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
