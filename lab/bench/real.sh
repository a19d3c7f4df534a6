#!/usr/bin/env bash
# Every method on real models: what is lost against the exact cache at equal bytes, where the question
# comes after the text was compressed. For lab/docs/evidence.md:
#
#   MODELS=folder ./lab/bench/real.sh                        all that is missing, of all models
#   MODEL=qwen2.5-coder-0.5b.gguf ./lab/bench/real.sh        of one
#
# It says first what is missing and how long that takes, by the seconds that were measured before
# (lab/bench/real_plan.py; PLAN=1 stops there). Results add up in lab/results/real/NAME.jsonl: what is
# there is not measured again, and what was interrupted goes on where it stopped. With MODEL, other
# NAME, TASKS, METHODS, SHARES, LENGTH and ROUNDS (of TEXTS, or 2 documents) may be given. TASKS are
# qa_plain, qa_shifted (the same documents a few words further on), tools, functions and all that
# `ballast eval ruler --make` writes. functions runs what the model writes. It needs Debian's package
# debian-handbook, and plain/ in DATA (../shared/data); THREADS is 1. Packed contexts need the model's basis
# (`ballast calibrate --packing`).
set -euo pipefail
cd "$(dirname "$0")/../.."

data=${DATA:-../shared/data}
ballast=${BALLAST:-build/ballast}
jobs=$(python3 lab/bench/real_plan.py)
[ -z "${PLAN:-}" ] || exit 0
[ -x "$ballast" ] || { echo "real.sh: $ballast is not built; ./test.sh builds it" >&2; exit 1; }
mkdir -p results/real lab/results/real
[ -s results/real/prose.txt ] || python3 lab/bench/real_data.py prose results/real/prose.txt

while IFS=$'\t' read -r model name task length round first contexts methods shares; do
  [ -n "$model" ] || continue
  folder=results/real/$name/$length/$round
  texts=$folder/$task.jsonl result=$folder/$task.json
  mkdir -p "$folder"
  if [[ $task =~ ^qa_(plain|shifted)$ ]]; then
    python3 lab/bench/real_data.py "${BASH_REMATCH[1]}" "$data/plain/documents.jsonl" "$texts" $((first - 1)) \
      $((first - 1 + contexts))
  elif [ "$task" = tools ]; then
    python3 lab/bench/real_data.py tools "$texts" "$length" "$first" "$contexts"
  elif [ "$task" = functions ]; then
    python3 lab/bench/real_functions.py make "$texts" "$length" "$first" "$contexts"
  else
    "$ballast" eval ruler -m "$model" --make "$folder" --haystack results/real/prose.txt --lengths "$length" \
      --tasks "$task" --count "$contexts" --questions 4 --seed "$first" >/dev/null
    mv "$folder/$length/$task.jsonl" "$texts"
  fi
  # The exact cache again: its answers show that texts and engine are those of the lines that are there.
  [[ $methods =~ ^exact(;|$) ]] || methods="exact;$methods"
  echo "$(date +%H:%M) $name: $task, $length tokens, texts from $first: $methods" >&2
  "$ballast" eval ruler -m "$model" --data "$texts" --question-later --methods "$methods" --cache "$shares" \
    --threads "${THREADS:-1}" -q --json="$result" >/dev/null </dev/null
  [ "$task" != functions ] || python3 lab/bench/real_functions.py grade "$texts" "$result"
  python3 lab/bench/real_rows.py add "lab/results/real/$name.jsonl" "$task" "$length" "$first" "$contexts" "$result"
done <<<"$jobs"
python3 lab/bench/real_page.py
