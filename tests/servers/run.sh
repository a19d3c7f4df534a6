#!/usr/bin/env bash
# Runs a test of ballast.transformers in an environment that has transformers 5.
#     run.sh TEST.py WORK PYTHONPATH
# BALLAST_HOSTS: the python of an environment with it. Without one it is installed in WORK, once, with
# the exit code 77 where pip cannot have it.
set -euo pipefail
test=$(realpath "$1") work=$2
export PYTHONPATH=$3
skip() { echo "$(basename "$test"): $1: skipped"; exit 77; }

python=${BALLAST_HOSTS:-$work/env/bin/python}
if [ -z "${BALLAST_HOSTS:-}" ] && [ ! -e "$work/ready" ]; then
  mkdir -p "$work"
  python3 -m venv "$work/env" >"$work/log" 2>&1 || skip "no venv"
  pip=("$work/env/bin/pip" --disable-pip-version-check -q install)
  "${pip[@]}" torch==2.13.0 >>"$work/log" 2>&1 || skip "no torch"
  "${pip[@]}" transformers==5.19.0 numpy >>"$work/log" 2>&1 || skip "no transformers"
  touch "$work/ready"
fi
cd "$(dirname "$test")"
exec "$python" "$test"
