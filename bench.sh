#!/usr/bin/env bash
# Builds and runs the benchmarks; each prints ratios to what this machine can do, measured in the
# same run. ./bench.sh attention runs one of them; options after -- go to Google Benchmark.
set -euo pipefail
cd "$(dirname "$0")"

names=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do names+=("$1"); shift; done
[ $# -gt 0 ] && shift

./setup.sh
cmake --preset bench >/dev/null
if [ ${#names[@]} -eq 0 ]; then
  for source in bench/*_bench.cc; do names+=("$(basename "$source" _bench.cc)"); done
fi
for name in "${names[@]}"; do
  [ -f "bench/${name}_bench.cc" ] || {
    echo "bench.sh: no benchmark '$name'; known: $(basename -s _bench.cc bench/*_bench.cc | tr '\n' ' ')" >&2
    exit 2
  }
  cmake --build --preset bench --target "bench_$name"
  "build/bench/bench_$name" "$@"
done
