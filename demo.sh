#!/usr/bin/env bash
# Installs what is missing, builds Ballast and compares cache methods on a made-up stream of keys
# and values: the single-layer experiment of the BalanceKV paper.
set -euo pipefail
cd "$(dirname "$0")"

./setup.sh
cmake --preset release >/dev/null
cmake --build --preset release --target ballast_program
mkdir -p results
echo
build/ballast eval attention --synth --tokens 8192 --heads 4 --kv-heads 2 --seeds 3 \
  --methods 'balancekv;uniform;h2o;snapkv;streaming-llm' --rates 0.5,0.25,0.125 \
  --plot results/attention.svg "$@"
echo
echo "The plot: $PWD/results/attention.svg"
