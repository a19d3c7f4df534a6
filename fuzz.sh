#!/usr/bin/env bash
# Runs every fuzz target for MINUTES altogether, from fuzz/corpus and what earlier runs found.
#   ./fuzz.sh 60           with libFuzzer where clang is, otherwise mutants without feedback
#   ./fuzz.sh 60 --plain   mutants without feedback, with the release build
# Prints executions, coverage of lines by folder (libFuzzer only) and findings. Inputs that crash,
# hang for 10 s or take over 4 GiB are kept in build-fuzz/findings; the exit code is then 1.
set -euo pipefail
cd "$(dirname "$0")"

usage() { echo "usage: ./fuzz.sh MINUTES [--plain]" >&2; exit 2; }
[ $# -ge 1 ] && [ $# -le 2 ] && [[ $1 =~ ^[0-9]+$ ]] || usage
minutes=$1 plain=${2:-}
[ -z "$plain" ] || [ "$plain" = --plain ] || usage
if [ -z "$plain" ] && ! { command -v clang++ && command -v llvm-profdata; } >/dev/null; then
  echo "fuzz.sh: no clang++ with llvm-profdata here (Debian: clang llvm libclang-rt-14-dev); going on without feedback" >&2
  plain=--plain
fi

names=()
for source in fuzz/*_fuzz.cc; do names+=("$(basename "$source" _fuzz.cc)"); done
each=$(( minutes * 60 / ${#names[@]} ))
[ "$each" -gt 0 ] || each=1
findings=build-fuzz/findings
mkdir -p "$findings"
status=0

if [ -n "$plain" ]; then
  cmake --preset release >/dev/null
  cmake --build --preset release --target fuzz_driver
  for name in "${names[@]}"; do
    ./build/fuzz/fuzz_driver "$name" "$each" "$RANDOM" "fuzz/corpus/$name" "$findings/$name" || status=1
  done
  exit $status
fi

cmake --preset fuzz >/dev/null
targets=()
for name in "${names[@]}"; do targets+=("fuzz_$name"); done
cmake --build --preset fuzz --target "${targets[@]}"
export ASAN_OPTIONS=${ASAN_OPTIONS:-allocator_may_return_null=1:detect_leaks=1}
rm -f build-fuzz/*.profraw
# Templates that the tests compare with Jinja2 are seeds too.
python3 fuzz/template_seeds.py tests/text/jinja/differential.json build-fuzz/corpus/chat_template
total=0
for name in "${names[@]}"; do
  mkdir -p "build-fuzz/corpus/$name" "$findings/$name"
  # Looking for leaks after each input, and weighing inputs by rare features, take most of the time.
  options=(-timeout=10 -rss_limit_mb=4096 -detect_leaks=0 -entropic=0 -print_final_stats=1
           -artifact_prefix="$findings/$name/")
  [ ! -f "fuzz/$name.dict" ] || options+=("-dict=fuzz/$name.dict")
  # A finding ends the fuzzer: it goes on until the time is over, or has ended twenty times.
  executed=0 end=$((SECONDS + each))
  for ((i = 0; i < 20 && SECONDS < end; ++i)); do
    LLVM_PROFILE_FILE=/dev/null "build-fuzz/fuzz/fuzz_$name" -max_total_time=$((end - SECONDS)) \
      "${options[@]}" "build-fuzz/corpus/$name" "fuzz/corpus/$name" \
      >"build-fuzz/$name.log" 2>&1 || status=1
    ran=$(sed -n 's/^stat::number_of_executed_units: *//p' "build-fuzz/$name.log")
    executed=$((executed + ${ran:-0}))
  done
  total=$((total + executed))
  # What was collected covers all that was reached; a fuzzer that a finding ends writes no counters.
  LLVM_PROFILE_FILE=build-fuzz/$name.profraw "build-fuzz/fuzz/fuzz_$name" -runs=0 "${options[@]}" \
    "build-fuzz/corpus/$name" "fuzz/corpus/$name" >"build-fuzz/$name.replay.log" 2>&1 || status=1
  echo "$name: $executed executions, $(find "$findings/$name" -type f | wc -l) findings"
done
echo "all: $total executions"

llvm-profdata merge -sparse build-fuzz/*.profraw -o build-fuzz/all.profdata
objects=()
for name in "${names[@]}"; do objects+=(-object "build-fuzz/fuzz/fuzz_$name"); done
llvm-cov export -summary-only -instr-profile=build-fuzz/all.profdata "${objects[@]}" |
  python3 fuzz/coverage.py "$PWD/src"
exit $status
