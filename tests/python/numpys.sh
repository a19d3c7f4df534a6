#!/usr/bin/env bash
# The module under NumPy 1 and under NumPy 2, whichever pybind11 built it.
#     numpys.sh PYTHON TESTS WORK; the environment is that of the tests
# Exits with 77 where pip has no such NumPy for this Python.
set -euo pipefail
python=$1 tests=$2 work=$3
skip() { echo "numpys: $1: skipped"; exit 77; }

rm -rf "$work"
mkdir -p "$work"
for numpy in 'numpy<2' 'numpy>=2'; do
  env=$work/$numpy
  "$python" -m venv "$env" >"$work/log" 2>&1 || skip "no venv"
  "$env/bin/python" -m pip --disable-pip-version-check -q install "$numpy" >>"$work/log" 2>&1 ||
    skip "no $numpy"
  "$env/bin/python" -c 'import numpy; print("NumPy", numpy.__version__)'
  for test in cache model; do
    "$env/bin/python" -W error::ResourceWarning "$tests/test_$test.py"
  done
  "$env/bin/python" -c '
import sys, ballast
model = ballast.Model(sys.argv[1])
text = open(sys.argv[2]).read()[:1500]
for options in ({"method": "exact"}, {"method": "h2o:rate=0.25"}, {"bytes": 1/8}):
    print(options, model.perplexity(text, **options))
' "$BALLAST_SOURCE/models/ballast-mini.gguf" "$BALLAST_SOURCE/examples/story.txt" >"$env/figures"
  [ "$(sort -u "$env/figures" | awk '{print $NF}' | uniq | wc -l)" = 3 ] ||
    { cat "$env/figures"; echo "numpys: methods cannot be told apart"; exit 1; }
done
cmp "$work/numpy<2/figures" "$work/numpy>=2/figures"
