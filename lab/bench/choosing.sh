#!/usr/bin/env bash
# Accuracy against bytes of the model that is shipped (or another: MODEL=model.gguf), for lab/docs/choosing.md:
#
#   ./lab/bench/choosing.sh                  all of it, in about seven minutes of one core
#   ./lab/bench/choosing.sh replay stream    these groups of methods again (exact, replay, others, stream)
#
# Each of results/choosing/TASK-GROUP.json is what one command printed; lab/bench/choosing_page.py makes
# lab/results/choosing.json and the page's tables of them.
set -euo pipefail
cd "$(dirname "$0")/../.."

model=${MODEL:-models/ballast-mini.gguf}
ballast=${BALLAST:-build/ballast}
[ -x "$ballast" ] || { echo "choosing.sh: $ballast is not built; ./test.sh builds it" >&2; exit 1; }
for group in "$@"; do
  [[ $group =~ ^(exact|replay|others|stream)$ ]] ||
    { echo "choosing.sh: no group '$group'; there are exact, replay, others and stream" >&2; exit 2; }
done
mkdir -p results/choosing

declare -A tasks=(
  [lines]="--lines 60,120,200 --repeat ${LINES_REPEAT:-14} --questions 5"
  [records]="--lengths 1800,3600 --repeat ${RECORDS_REPEAT:-10} --questions 10"
  [needle]="--lengths 1024,2048 --depth-count 5 --repeat ${NEEDLE_REPEAT:-20}"
)
types='exact;exact:type=int8;exact:type=int4;exact:type=q4/q2;exact:type=q2'
others='kvzip;streaming-llm:type=q4/q2;h2o:type=q4/q2;streaming-llm;h2o;balancekv;snapkv;keydiff;expected-attention'
declare -A groups=(
  [exact]="--cache 1/4 --methods $types"
  [replay]="--cache 1/4,1/8,1/16,1/32 --methods exact;replay"
  [others]="--cache 1/4,1/8,1/16 --methods exact;$others"
  [stream]="--cache 1/8 --protocol stream --methods exact;replay"
)
for group in ${@:-exact replay others stream}; do
  for task in lines records needle; do
    # shellcheck disable=SC2086  # lists of options
    "$ballast" eval "$task" -m "$model" ${tasks[$task]} --seed 101 --question-later ${groups[$group]} \
      -q --threads "${THREADS:-1}" --json="results/choosing/$task-$group.json" >/dev/null
    echo "$task, $group" >&2
  done
done
python3 lab/bench/choosing_page.py --from results/choosing
