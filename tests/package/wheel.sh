#!/usr/bin/env bash
# Builds the wheel, installs it in a clean virtual environment and uses it.
#     wheel.sh SOURCE WORK
# Exits with 77 unless python3 has venv and pip can fetch what builds it.
set -euo pipefail
source=$1 work=$2
skip() { echo "wheel: $1: skipped"; exit 77; }

rm -rf "$work"
mkdir -p "$work"
python3 -m venv "$work/env" >"$work/log" 2>&1 || skip "no venv"
pip=("$work/env/bin/pip" --disable-pip-version-check -q)
"${pip[@]}" install "scikit-build-core>=0.9" "pybind11>=2.12,<3" numpy >>"$work/log" 2>&1 ||
  skip "no packages"
"${pip[@]}" wheel "$source" --no-deps --no-build-isolation -w "$work/wheels" >>"$work/log" 2>&1 ||
  { tail -n 20 "$work/log"; exit 1; }
"${pip[@]}" install --no-deps "$work"/wheels/*.whl
cd "$work"
env/bin/python - "$source/models/ballast-mini.gguf" <<'END'
import sys
import ballast
print(ballast.__version__, len(ballast.methods()), "methods")
rows = ballast.evaluate("lines", model=sys.argv[1], methods=["exact", "uniform"], bytes=0.5, lines=[10],
                        repeat=1, max_tokens=4)
print(len(rows), "records")
END
