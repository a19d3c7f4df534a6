#!/usr/bin/env bash
# Installs what is missing, builds Ballast, fetches a model and asks it five questions about a story,
# with the exact cache and with an eighth of it. Ends with a page that shows what each method kept of
# a longer text. Where no model can be fetched, the small one that is shipped answers.
#   ./demo.sh            some minutes once it is built
#   ./demo.sh --quick    without the page
#   MODEL=NAME ./demo.sh         another model of `ballast models`, or a file
set -euo pipefail
cd "$(dirname "$0")"

quick=
while [ $# -gt 0 ]; do
  case $1 in
    --quick) quick=yes ;;
    *) echo "demo.sh: unknown option '$1'; known: --quick" >&2; exit 2 ;;
  esac
  shift
done

./setup.sh
cmake --preset release >/dev/null
cmake --build --preset release --target ballast_program ballast_eval
mkdir -p results
ballast=build/ballast

# A model that answers questions about a text: of those that are here the first of at least half a
# billion weights, else one that is fetched. The two small ones show that all works, no more.
large=qwen2.5-coder-0.5b
model=${MODEL:-}
small=
if [ -z "$model" ]; then
  model=$("$ballast" models --json | python3 -c '
import json, sys

here = [m for m in json.load(sys.stdin)["here"]
        if "error" not in m and 300e6 <= m["bytes"] <= 6e9]
here.sort(key=lambda m: ("qwen" not in m["name"].lower(), m["bytes"]))
print(here[0]["name"] if here else "")')
fi
if [ -z "$model" ]; then
  for name in $large smollm2-135m; do
    [ -n "$model" ] || ! "$ballast" pull "$name" || model=$name
  done
  [ "$model" = $large ] || small=yes
fi
if [ -z "$model" ]; then
  model=models/ballast-mini.gguf
fi
if [ -n "$small" ]; then
  echo "demo.sh: $large cannot be fetched here. $model, which answers in its place, is too small to
answer questions about a text well; it shows time and memory. With a network, or with a model of
yours: MODEL=FILE ./demo.sh"
fi

tail -n 5 examples/story-questions.txt >results/questions.txt
ask=("$ballast" run -m "$model" --context examples/story.txt --questions results/questions.txt -n 24)
"${ask[@]}" --json >results/exact.json
"${ask[@]}" --cache 1/8 --json >results/eighth.json
python3 - "$model" results/exact.json results/eighth.json <<'PYTHON'
import json, shutil, sys, textwrap

model, *files = sys.argv[1:]
exact, eighth = (json.load(open(f)) for f in files)
width = (min(shutil.get_terminal_size().columns, 140) - 4) // 3

def row(*cells):
    lines = [textwrap.wrap(cell, width) or [""] for cell in cells]
    for i in range(max(map(len, lines))):
        print("  ".join((line[i] if i < len(line) else "").ljust(width) for line in lines).rstrip())

def of(report):
    s = report["statistics"]
    cache = s["cache_after_prompt"]
    return (f"{s['prompt']['seconds'] + s['compress_seconds']:.1f} s",
            f"{cache['bytes']['used'] / 1024:,.0f} KiB",
            f"{s['answer']['seconds'] + s['question']['seconds']:.1f} s")

print(f"\n{model} has read examples/story.txt, {exact['statistics']['prompt']['tokens']} tokens\n")
words = ["Osterby", "Kessel", "green", "raven", "47"]
right = sum(word in a["text"] for word, a in zip(words, exact["answers"]))
if right < 3:
    print(f"It answers {right} of {len(words)} questions with the exact cache, too few to compare others with.\n")
    row("", "the exact cache", "an eighth of it")
    row(*["-" * width] * 3)
else:
    row("question", "the exact cache", "an eighth of it")
    row(*["-" * width] * 3)
    for a, b in zip(exact["answers"], eighth["answers"]):
        row(a["question"], a["text"].strip(), b["text"].strip())
    print()
for name, a, b in zip(("time to read", "memory of the cache", "time to answer"), of(exact), of(eighth)):
    row(name, a, b)
print(f"\nGo on:  build/ballast run -m {model} --cache 1/8 --cite --context FILE.pdf --question '…'")
PYTHON
[ -z "$quick" ] || exit 0

# What methods keep: a sentence that is asked for later, hidden in a text of a thousand tokens.
echo
"$ballast" eval needle -m "$model" --lengths 1024 --depth-count 3 --repeat 1 --question-later \
  --methods 'exact;replay;kvzip;balancekv;h2o;snapkv;streaming-llm' --cache 1/8 --show-kept \
  --json=results/needle.json
# Where the exact cache finds little, no method can be told from another.
if ! python3 - results/needle.json <<'PYTHON'
import json, sys

rows = json.load(open(sys.argv[1]))["results"]
exact = [row["score"] for row in rows if row["method"] == "exact"]
sys.exit(0 if exact and sum(exact) / len(exact) >= 0.6 else 1)
PYTHON
then
  echo "demo.sh: no page is drawn: $model does not find the sentence with the exact cache either, so
that methods cannot be compared; MODEL=$large ./demo.sh"
  exit 0
fi
"$ballast" report results/needle.json -o results/demo.html \
  --title 'What is still found when most of the cache is gone'
echo "Open it: file://$PWD/results/demo.html"
