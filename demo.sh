#!/usr/bin/env bash
# Installs what is missing, builds Ballast and asks the model that it ships two kinds of questions, with
# the exact cache and with every method at a part of its bytes: lines of a long record (LongEval) at a
# quarter and a sixteenth, needles in a haystack at an eighth. No method knows the questions when it
# compresses. Ends with a page that shows what was found and what was kept.
#   ./demo.sh            under three minutes once it is built
#   ./demo.sh --quick    fewer questions
set -euo pipefail
cd "$(dirname "$0")"

questions=50 depths=5
while [ $# -gt 0 ]; do
  case $1 in
    --quick) questions=8 depths=3 ;;
    *) echo "demo.sh: unknown option '$1'; known: --quick" >&2; exit 2 ;;
  esac
  shift
done

./setup.sh
cmake --preset release >/dev/null
cmake --build --preset release --target ballast_program
mkdir -p results

ballast=build/ballast
model=models/ballast-mini.gguf
# Types of storage stand beside them, at the bytes that they take.
methods='exact;exact:type=int4;exact:type=q4/q2;exact:type=q2;replay;kvzip;balancekv;balancekv:outliers=yes;balancekv-stream;clustergen;kcenter;h2o;snapkv;pyramidkv;streaming-llm;local;uniform;topk;strided;fixed;spatten'
lines=(--lines 200 --repeat "$questions")
# LongEval's own questions where they are; ours are worded alike.
longeval=../shared/data/longeval/200_lines.jsonl
[ -f "$longeval" ] && lines=(--data "$longeval" --limit "$questions")

echo
"$ballast" eval lines -m "$model" "${lines[@]}" --question-later --methods "$methods" \
  --cache 1/4,1/16 --show-kept --json=results/lines.json
echo
"$ballast" eval needle -m "$model" --lengths 2048,3072,4000 --depth-count "$depths" --repeat 2 \
  --question-later --methods "$methods" --cache 1/8 --show-kept --json=results/needle.json
echo
"$ballast" report results/lines.json results/needle.json -o results/demo.html \
  --title 'What is still found when most of the cache is gone'
echo "Open it: file://$PWD/results/demo.html"
