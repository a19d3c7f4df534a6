#!/bin/sh
# BalanceKV's halving (16,384 tokens, d = 128, blocks of 256, two rounds, one thread) against PyTorch
# programs of the same algorithm, and against the time that the Gram matrices alone need at the
# machine's peak. Needs python3-torch and a build with -DBALLAST_BENCH=ON.
#   lab/bench/balance_against_torch.sh [build folder]
set -e
here=$(dirname "$0")
build=${1:-$here/../../build}
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
python=${PYTHON:-/usr/bin/python3}
results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT
"$build/bench/bench_balance" --benchmark_filter='BM_Balance/256$' \
  --benchmark_repetitions=9 --benchmark_min_time=0.1 \
  --benchmark_format=json >"$results/ballast.json" 2>/dev/null
"$python" "$here/balance_bench.py" >"$results/torch.json"
"$python" - "$results" <<'END'
import json
import sys

runs = json.load(open(sys.argv[1] + "/ballast.json"))["benchmarks"]
torch = json.load(open(sys.argv[1] + "/torch.json"))
runs = [r for r in runs if r["run_type"] == "iteration"]
# Processor time: other programs on the machine take turns with these.
ours = min(r["cpu_time"] for r in runs)
peak = max(r["peak_Gflop/s"] for r in runs)
floor = max(r["Gflop/s"] for r in runs) * ours / peak
print(f"ballast                  {ours:9.1f} ms")
for name in ("direct", "gram"):
    time = torch[name + "_cpu_ms"]
    print(f"PyTorch, {name:6}          {time:9.1f} ms   {time / ours:6.1f} times ballast's")
print(f"Gram matrices at {peak:4.0f} Gflop/s {floor:5.1f} ms   "
      f"{100 * floor / ours:5.0f} % of ballast's time")
END
