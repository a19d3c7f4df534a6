#!/usr/bin/env bash
# The papers' tables and figures on the model that is shipped (or another: MODEL=model.gguf), and the
# page of them:
#
#   ./lab/bench/experiments.sh               balancekv, clustergen and h2o, in about fifteen minutes of one core
#   ./lab/bench/experiments.sh h2o           one of them
#
# It writes lab/results/PAPER.json and the tables of lab/docs/experiments.md; each row's own result and a
# page with charts lie in results/PAPER/. What was interrupted goes on where it stopped. The benchmarks'
# own files are read from ../shared/data (or DATA=folder with longeval/ and longbench/).
set -euo pipefail
cd "$(dirname "$0")/../.."

model=${MODEL:-models/ballast-mini.gguf}
data=${DATA:-../shared/data}
ballast=${BALLAST:-build/ballast}

[ -x "$ballast" ] || { echo "experiments.sh: $ballast is not built; ./test.sh builds it" >&2; exit 1; }
mkdir -p results/data lab/results
for folder in longeval longbench; do
  [ ! -d "$data/$folder" ] || ln -sfn "$(realpath "$data/$folder")" "results/data/$folder"
done
# Made questions are the same each time; files that are newer than results would not undo them.
[ -e results/data/choice/asked.txt ] || python3 lab/bench/experiment_data.py results/data/choice
for paper in ${@:-balancekv clustergen h2o}; do
  "$ballast" eval paper "$paper" -m "$model" --data results/data --text results/data/choice/asked.txt \
    -o "results/$paper" --limit "${LIMIT:-12}" --threads "${THREADS:-1}" --json="lab/results/$paper.json"
done
python3 lab/bench/experiments_page.py
