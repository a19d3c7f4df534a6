#!/usr/bin/env bash
# The papers' experiments on the model that is shipped (or another: MODEL=model.gguf), one after
# another: tables here, results/experiments/NAME.json, and at the end one page of all of them.
#
#   ./bench/experiments.sh            all, in about twelve minutes on one core
#   ./bench/experiments.sh needle …   some of them
#   ./bench/experiments.sh --quick    all, so small that only the commands are tried
#
# What was interrupted goes on where it stopped. The benchmarks' own files are read from ../shared/data
# (or DATA=folder); what needs one that is not there is left out and named at the end.
set -euo pipefail
cd "$(dirname "$0")/.."

model=${MODEL:-models/ballast-mini.gguf}
data=${DATA:-../shared/data}
threads=${THREADS:-1}
ballast=${BALLAST:-build/ballast}
out=results/experiments

all='exact;balancekv;balancekv-stream;clustergen;kcenter;h2o;snapkv;pyramidkv;streaming-llm;local;uniform;topk;strided;fixed;spatten'
# Without the two whose sums are samples of their own: they take seconds a question and find no more.
most=${all/balancekv-stream;clustergen;/}

quick='' names=()
for word in "$@"; do
  if [ "$word" = --quick ]; then quick=1; else names+=("$word"); fi
done
[ -z "$quick" ] || out=results/experiments-quick
made=$out/data

# A size, and that of --quick.
size() { if [ -n "$quick" ]; then echo "$2"; else echo "$1"; fi; }

# ballast eval …, its result kept as NAME.json.
run() {
  local name=$1
  shift
  printf '\n== %s\n' "$name"
  local begin=$SECONDS
  "$ballast" eval "$@" --threads "$threads" -q --json="$out/$name.json" || failed+=("$name")
  echo "($((SECONDS - begin)) s)"
}

# Whether the benchmark's file is there.
need() {
  [ -e "$data/$2" ] && return 0
  missing+=("$1: $data/$2")
  return 1
}

# Queries, keys and values of the model reading a record of 190 lines.
captured() {
  [ "$out/record.safetensors" -nt "$model" ] && return
  "$ballast" capture -m "$model" -f "$made/record.txt" -o "$out/record.safetensors" --dtype f32 -q
}

# ---- of single layers ------------------------------------------------------------------------------

attention() { # BalanceKV, figure 1
  captured
  run attention attention "$out/record.safetensors" --seeds "$(size 10 2)" \
    --rates 0.5,0.25,0.125,0.0625 --methods 'balancekv;uniform;kcenter;h2o;snapkv;streaming-llm'
}
ablation() { # BalanceKV, figure 3
  captured
  run ablation ablation "$out/record.safetensors" --select-layers 1,3 --seeds "$(size 10 2)"
}
norms() { # BalanceKV, table 3
  captured
  run norms norms "$out/record.safetensors"
}
clusters() { # ClusterGen, figure 1
  captured
  run clusters clusters "$out/record.safetensors" --centres 1,4,16,64,256
}
heavy() { # H2O, figure 2
  captured
  run heavy heavy "$out/record.safetensors" -m "$model" --text "$made/asked.txt" --removed 0.1
}

# ---- finding things --------------------------------------------------------------------------------

needle() { # BalanceKV, figure 4
  run needle needle -m "$model" --lengths 1024,2048,3072,4000 --depth-count "$(size 5 2)" \
    --repeat "$(size 3 1)" --methods "$most;balancekv:outliers=yes;snapkv:kernel=21" --cache 0.25
}
passkey() {
  run passkey needle --passkey -m "$model" --lengths 2048,4000 --depth-count "$(size 5 2)" \
    --repeat "$(size 3 1)" --methods "$most;balancekv:outliers=yes" --cache 0.25
}
lines() { # ClusterGen, table 1
  need lines longeval/200_lines.jsonl || return 0
  run lines lines -m "$model" --data "$data/longeval/200_lines.jsonl" --limit "$(size 50 2)" \
    --cache 0.25 --methods "$all"
}
lines-65() { # what the paper keeps, and its windows (2,048 or 3,072 of 5,000 tokens) in proportion
  need lines-65 longeval/200_lines.jsonl || return 0
  run lines-65 lines -m "$model" --data "$data/longeval/200_lines.jsonl" --limit "$(size 50 2)" \
    --cache 0.65 --methods "$most;kcenter:window=1350;kcenter:window=2020"
}
lines-short() { # the same where the model is surer: 60 and 120 lines
  run lines-short lines -m "$model" --lines 60,120 --repeat "$(size 50 2)" --cache 0.5 \
    --methods "$most"
}
light() { # BalanceKV, table 5: on lines, which the model can find, and as the paper, on LongBench
  local methods='exact;balancekv;uniform:from=oldest;uniform'
  run light-lines lines -m "$model" --lines 120 --repeat "$(size 100 2)" --rates 0.8,0.9,0.95 \
    --seeds 1 --methods "$methods"
  need light longbench/multi_news.jsonl || return 0
  run light light -m "$model" --data "$data/longbench/multi_news.jsonl" --limit "$(size 3 1)" \
    --methods "$methods"
}
ruler() {
  need ruler ruler/niah_multikey_3_4096.jsonl || return 0
  run ruler ruler -m "$model" --data "$data/ruler/niah_multikey_3_4096.jsonl" \
    --limit "$(size 25 1)" --max-tokens 64 --cache 0.5 \
    --methods 'exact;balancekv;kcenter;h2o;snapkv;pyramidkv;streaming-llm;uniform'
}
longbench() { # BalanceKV, tables 1 and 6; ClusterGen, table 2
  need longbench longbench/multi_news.jsonl || return 0
  run longbench longbench -m "$model" --data "$data/longbench/multi_news.jsonl" \
    --limit "$(size 5 1)" --rates 0.25 \
    --methods 'exact;balancekv;uniform;snapkv;pyramidkv;streaming-llm;clustergen;kcenter'
}

# ---- H2O's tables ----------------------------------------------------------------------------------

choice() { # figures 4 and 8; tables 1, 2, 8, 9, 10, 11
  run choice choice -m "$model" --data "$made/openbookqa.jsonl" --data "$made/winogrande.jsonl" \
    --shots 0 --limit "$(size 50 2)" --rates 0.2
  run choice-rates choice -m "$model" --data "$made/openbookqa.jsonl" --shots 0 \
    --limit "$(size 40 2)" --rates 0.8,0.6,0.4,0.2,0.1,0.04 --methods 'exact;local;h2o'
  run choice-shots choice -m "$model" --data "$made/openbookqa.jsonl" --shots 2 \
    --limit "$(size 40 2)" --rates 0.2 --methods 'exact;local;h2o'
}
quantised() { # table 6
  run quantised quantised -m "$model" --data "$made/openbookqa.jsonl" \
    --data "$made/winogrande.jsonl" --shots 0 --limit "$(size 50 2)" --rates 0.2
}
summarise() { # figures 4 and 9
  need summarise longbench/xsum_0shot.jsonl || return 0
  run summarise summarise -m "$model" --data "$data/longbench/xsum_0shot.jsonl" \
    --limit "$(size 25 1)" --rates 0.6,0.2 --methods 'exact;h2o;local;streaming-llm'
}
diversity() { # appendix C.1
  need diversity longbench/xsum_0shot.jsonl || return 0
  run diversity diversity -m "$model" --data "$data/longbench/xsum_0shot.jsonl" \
    --limit "$(size 25 2)" --rates 0.2 --methods 'exact;h2o;local'
}
stream() { # figure 5
  run stream stream -m "$model" "$made/stream.txt" --tokens "$(size 100000 2000)" \
    --budgets 512 --methods 'h2o;streaming-llm;balancekv'
}

# ---- speed -----------------------------------------------------------------------------------------

efficiency() { # BalanceKV, table 2; the longer one on random weights, for it is longer than the model
  local methods='exact;snapkv;pyramidkv;streaming-llm;balancekv'
  run efficiency efficiency -m "$model" --prompt "$(size 3072 128)" --generate "$(size 1024 16)" \
    --repeat "$(size 10 1)" --rates 0.25 --methods "$methods"
  run efficiency-16k efficiency --prompt "$(size 16384 256)" --generate "$(size 1024 16)" \
    --repeat "$(size 2 1)" --rates 0.25 --methods "$methods" --shape \
    layers=4,width=256,heads=4,kv=2,head=64,hidden=256,vocabulary=2048,type=f16,positions=17500
}
throughput() { # H2O, tables 3 to 5
  run throughput throughput -m "$model" --prompt 512,2048 --generate "$(size 512 16)" \
    --memory "$(size 64M 24M)" --methods 'exact;h2o;streaming-llm;balancekv' --rates 0.2
}

known=(attention ablation norms clusters heavy needle passkey lines lines-65 lines-short light ruler
  longbench choice quantised summarise diversity stream efficiency throughput)
[ ${#names[@]} -gt 0 ] || names=("${known[@]}")
for name in "${names[@]}"; do
  [[ " ${known[*]} " == *" $name "* ]] || {
    echo "experiments.sh: no experiment '$name'; known: ${known[*]}" >&2
    exit 2
  }
done
[ -x "$ballast" ] || { echo "experiments.sh: $ballast is not built; ./test.sh builds it" >&2; exit 1; }

mkdir -p "$out"
failed=() missing=()
python3 bench/experiment_data.py "$made"
for name in "${names[@]}"; do "$name"; done

pages=()
for name in attention ablation norms clusters heavy needle passkey lines lines-65 lines-short light-lines light \
  ruler longbench choice choice-rates choice-shots quantised summarise diversity stream efficiency \
  efficiency-16k throughput; do
  [ -s "$out/$name.json" ] && pages+=("$out/$name.json")
done
echo
"$ballast" report "${pages[@]}" -o "$out/report.html" --title "The papers' experiments on $(basename "$model")"
for line in ${missing[@]+"${missing[@]}"}; do echo "left out, there is no such file: $line"; done
for name in ${failed[@]+"${failed[@]}"}; do echo "failed: $name"; done
[ ${#failed[@]} -eq 0 ]
