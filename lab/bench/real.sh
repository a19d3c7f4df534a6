#!/usr/bin/env bash
# Every method on a real model: what is lost against the exact cache at equal bytes, where the question
# comes after the text was compressed. For lab/docs/evidence.md:
#
#   MODEL=qwen2.5-coder-0.5b.gguf ./lab/bench/real.sh         all that is missing
#
# Results add up in lab/results/real/MODEL.jsonl: what is there is not measured again, and what was
# interrupted goes on where it stopped. All tasks get their first texts before any gets more. Other
# TASKS, METHODS, SHARES, LENGTH, ROUNDS (of 5 texts or 2 documents) and THREADS may be given. TASKS are
# qa_plain and all that `ballast eval ruler --make` writes: RULER's, arithmetic_3, _5, _7, problems_3, _5, _7,
# code_constant, code_result, tools. It needs Debian's package debian-handbook, and plain/ in DATA (../shared/data).
set -euo pipefail
cd "$(dirname "$0")/../.."

model=${MODEL:?real.sh: give the model, MODEL=model.gguf}
name=${NAME:-$(basename "$model" .gguf)}
data=${DATA:-../shared/data}
ballast=${BALLAST:-build/ballast}
length=${LENGTH:-4096}
tasks=${TASKS:-qa_plain niah_multikey_1 niah_multivalue vt fwe qa_1}
shares=${SHARES:-1/4,1/8,1/16}
methods=${METHODS:-"exact;exact:type=q4;exact:type=q4/q2;calibrated;replay;kvzip-plus;snapkv;h2o;streaming-llm"}
rows=lab/results/real/$name.jsonl
work=results/real/$name
each=5

[ -x "$ballast" ] || { echo "real.sh: $ballast is not built; ./test.sh builds it" >&2; exit 1; }
mkdir -p "$work" "$(dirname "$rows")"
[ -s results/real/prose.txt ] || python3 lab/bench/real_data.py prose results/real/prose.txt

# ask TASK ROUND METHODS: their scores on the texts of a round.
ask() {
  local task=$1 folder=$work/$2 contexts=$each
  [ "$task" != qa_plain ] || contexts=2  # of 8 documents with 10 questions each
  local first=$((contexts * $2 + 1))
  local result=$folder/$task.json
  mkdir -p "$folder"
  if [ "$task" = qa_plain ]; then
    python3 lab/bench/real_data.py plain "$data/plain/documents.jsonl" "$folder/qa_plain.jsonl" $((first - 1)) \
      $((first - 1 + contexts))
    [ -s "$folder/qa_plain.jsonl" ] || return 0
  fi
  local missing
  missing=$(python3 lab/bench/real_rows.py missing "$rows" "$task" "$length" "$first" "$3" "$shares")
  [ -n "$missing" ] || return 0
  if [ "$task" != qa_plain ]; then
    "$ballast" eval ruler -m "$model" --make "$folder" --haystack results/real/prose.txt --lengths "$length" \
      --tasks "$task" --count $each --questions 4 --seed "$first" >/dev/null
    mv "$folder/$length/$task.jsonl" "$folder/$task.jsonl"
  fi
  [[ $missing =~ ^exact(;|$) ]] || missing="exact;$missing"
  echo "$(date +%H:%M) $task, texts from $first: $missing" >&2
  "$ballast" eval ruler -m "$model" --data "$folder/$task.jsonl" --question-later --methods "$missing" \
    --cache "$shares" --threads "${THREADS:-1}" -q --json="$result" >/dev/null
  python3 lab/bench/real_rows.py add "$rows" "$task" "$length" "$first" "$contexts" "$result"
}

for round in $(seq 0 $((${ROUNDS:-4} - 1))); do
  for task in $tasks; do
    ask "$task" "$round" "$methods"
  done
done
python3 lab/bench/real_page.py
