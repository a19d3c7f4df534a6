#!/usr/bin/env bash
# The papers' tables and figures on real models, and the page of them:
#
#   MODELS=folder ./lab/bench/experiments.sh            all that is missing, in about two hours of one core
#   MODELS=folder ./lab/bench/experiments.sh h2o        one of balancekv, clustergen and h2o
#
# MODELS has qwen05.gguf (Qwen2.5-Coder-0.5B-Instruct) and smollm2.gguf (SmolLM2-135M-Instruct). It writes
# lab/results/PAPER.json and the tables of lab/docs/experiments.md; each row's own result lies in results/PAPER/. What
# was interrupted goes on where it stopped. The benchmarks' own files are read from ../shared/data (or DATA=folder, see
# lab/bench/experiment_data.py); times of rows on speed are only as good as the machine is idle.
set -euo pipefail
cd "$(dirname "$0")/../.."

models=${MODELS:?experiments.sh: give the folder of the models, MODELS=folder}
ballast=${BALLAST:-build/ballast}
wanted=${*:-balancekv clustergen h2o}
[ -x "$ballast" ] || { echo "experiments.sh: $ballast is not built; ./test.sh builds it" >&2; exit 1; }
# Made files are the same each time; newer than results they would undo them.
[ -s results/data/prose.txt ] || python3 lab/bench/experiment_data.py "${DATA:-../shared/data}" results/data
short=results/data
whole=results/data/texts

# rows PAPER MODEL LONGEST LIMIT DATA ROWS: the smallest model that answers above chance, and as many samples as show a
# difference as large as the paper's.
rows() {
  local part=results/$1/part-${6%%,*}.json
  [[ " $wanted " == *" $1 "* ]] || return 0
  mkdir -p "results/$1" models
  [ -e "models/$2.gguf" ] || ln -s "$(realpath "$models/$2.gguf")" "models/$2.gguf"
  "$ballast" eval paper "$1" -m "models/$2.gguf" --data "$5" --text results/data/prose.txt -o "results/$1" \
    --longest "$3" --limit "$4" --rows "$6" --threads "${THREADS:-1}" --json="$part"
  python3 lab/bench/experiments_page.py add "$1" "$part"
}

rows balancekv qwen05 2048 10 $whole theorem-3.1,algorithm-1,algorithm-1-norms,theorem-3.2,table-3,figure-1,figure-3
rows clustergen qwen05 2048 10 $whole figure-1
rows h2o qwen05 2048 10 $whole figure-2,table-12,figure-13,section-4
rows balancekv smollm2 2048 20 $short table-2,table-4
rows h2o smollm2 2048 25 $short table-3,table-4,table-7,appendix-c1,figure-5
rows clustergen qwen05 4096 30 $short table-1-200
rows h2o smollm2 2048 50 $short table-2
rows balancekv qwen05 2048 10 $short figure-4
rows balancekv qwen05 2048 40 $short table-1
rows h2o smollm2 2048 50 $short table-6
rows h2o smollm2 2048 40 $short table-10
rows h2o smollm2 2048 160 $short figure-8
rows h2o qwen05 1024 25 $short figure-9
rows clustergen qwen05 2048 30 $short table-2
rows clustergen qwen05 4096 48 $short table-1-300
rows clustergen qwen05 4096 48 $short table-1-400
rows h2o smollm2 2048 25 $short figure-4
rows balancekv qwen05 4096 20 $short table-5-lines
rows balancekv qwen05 2048 40 $short table-5
python3 lab/bench/experiments_page.py
