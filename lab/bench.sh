#!/usr/bin/env bash
# Builds and runs the benchmarks; each prints ratios to what this machine can do, measured in the
# same run, and leaves its figures as JSON in results/. Ends with a table of targets and results
# (results/bench.json).
#
#   ./lab/bench.sh             kernels and methods, then whole models, beside llama.cpp;
#                          twenty to thirty minutes
#   ./lab/bench.sh --quick     the same on shorter texts, in a few minutes
#   ./lab/bench.sh attention   one of them; options after -- go to Google Benchmark
#   ./lab/bench.sh models      whole models alone; options after -- go to ballast bench
#   BALLAST_TARGET=avx2 ./lab/bench.sh attention matmul models
#                          our kernels as on a processor with no more than that: amx, avx512, avx2
set -euo pipefail
cd "$(dirname "$0")/.."

names=() quick=
while [ $# -gt 0 ] && [ "$1" != -- ]; do
  if [ "$1" = --quick ]; then quick=1; else names+=("$1"); fi
  shift
done
[ $# -gt 0 ] && shift
known=($(basename -s _bench.cc lab/bench/*_bench.cc) models)
[ ${#names[@]} -eq 0 ] && names=("${known[@]}")
for name in "${names[@]}"; do
  [[ " ${known[*]} " == *" $name "* ]] || {
    echo "bench.sh: no benchmark '$name'; known: ${known[*]}" >&2
    exit 2
  }
done

./setup.sh
mkdir -p results
written=()  # by this run
cmake --preset bench >/dev/null

kernels() {
  local name=$1
  shift
  cmake --build --preset bench --target "bench_$name"
  "build/bench/bench_$name" ${quick:+--benchmark_min_time=0.02} \
    --benchmark_out="results/bench-$name.json" --benchmark_out_format=json "$@"
  written+=("results/bench-$name.json")
}

# Random weights: the same model on every machine, none to be downloaded.
models() {
  cmake --build --preset bench --target ballast_program ballast_eval
  local model=results/bench-model.gguf prompts=512,4096,16384 long=16384 scale=1k..64k far=1k..1M
  local repeat=2 others='exact;h2o:rate=0.25;snapkv:rate=0.25;clustergen:rate=0.25;kcenter:rate=0.25'
  [ -n "$quick" ] && prompts=512,2048 long=2048 scale=1k..8k far=1k..64k repeat=1
  local ballast=(build/ballast bench --target "${BALLAST_TARGET:-native}")
  "${ballast[@]}" --shape default --write-model "$model" --prompt 8 --generate 1 >/dev/null
  echo "== Whole model: speed"
  "${ballast[@]}" -m "$model" --prompt "$prompts" --repeat $repeat --against lab/bench/peers/llama-bench \
    --json=results/bench-speed.json "$@"
  echo "== Whole model: what other methods add to a prompt"
  "${ballast[@]}" -m "$model" --prompt "$long" --generate 16 --methods "$others" \
    --repeat $repeat --json=results/bench-methods.json
  echo "== Whole model: tokens a second in a given memory"
  # Of uncompressed sequences, the first holds one with a prompt of 512, the second one with 2,048.
  "${ballast[@]}" -m "$model" --protocol stream --memory 134M,170M --repeat $repeat \
    ${quick:+--generate 64} --json=results/bench-throughput.json
  echo "== Whole model: time and memory against length"
  "${ballast[@]}" -m "$model" --scale "$scale" --plot results/bench-scale.svg \
    --json=results/bench-scale.json
  echo "== The model that is shipped, far beyond its positions"
  "${ballast[@]}" -m models/ballast-mini.gguf --positions rolling --scale "$far" \
    --plot results/bench-far.svg --json=results/bench-far.json
  written+=(results/bench-{speed,methods,throughput,scale,far}.json)
}

for name in "${names[@]}"; do
  if [ "$name" = models ]; then models "$@"; else kernels "$name" "$@"; fi
done
echo "== Targets and results"
cmake --build --preset bench --target bench_table >/dev/null
build/bench/bench_table results/bench.json "${written[@]}"
