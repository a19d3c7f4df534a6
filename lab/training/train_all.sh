#!/usr/bin/env bash
# Trains the larger model, from its start to a GGUF file, on any machine with PyTorch 2 and CUDA:
#
#     lab/training/train_all.sh [options] [DIRECTORY]        (DIRECTORY: run-large)
#
# The work is done in slices of ten minutes. A slice ends by itself and leaves a checkpoint of files of at most 16 MiB
# in DIRECTORY; a later slice, here or where DIRECTORY was copied to, goes on from it. At the end the model is written
# to DIRECTORY/ballast-large.gguf and scored.
#
#     --slices N     end after N slices (default: go on until all is done); exit status 3: there is more to do
#     --minutes M    length of a slice (default 9.5)
#     --scale F      so many times the tokens of every stage (default 1)
#     --device D     cuda or cpu (default: cuda)
#     --workers N    processes that write the texts (default: all cores but one)
#     --tiny         two layers on a few thousand tokens, to see that all of it works
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=${PYTHON:-python3}
directory=run-large slices=0 minutes=9.5 scale=1 device=cuda workers= tiny=
while [[ $# -gt 0 ]]; do
  case $1 in
    --slices | --minutes | --scale | --device | --workers)
      [[ $# -ge 2 ]] || { echo "train_all.sh: $1 needs a value" >&2; exit 2; }
      declare "${1#--}=$2"
      shift 2 ;;
    --tiny) tiny=1; shift ;;
    -h | --help) sed -n '2,/^set /s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" | sed '$d'; exit 0 ;;
    -*) echo "train_all.sh: unknown option $1; see --help" >&2; exit 2 ;;
    *) directory=$1; shift ;;
  esac
done
cores=$(nproc)
[[ -n $workers ]] || workers=$((cores > 1 ? cores - 1 : 1))

shape=(--width 512 --heads 8 --kv_heads 4 --layers 6 --hidden 256)
lengths=(128 256 512 1024 2048 4096 8192 16384)
tokens=(10e6 20e6 40e6 60e6 100e6 150e6 200e6 250e6)
batch=32768 context=16384 scored=1024,4096,16384 count=50
if [[ -n $tiny ]]; then
  shape=(--width 512 --heads 8 --kv_heads 4 --layers 2 --hidden 64)
  lengths=(128 256)
  tokens=(8e3 8e3)
  batch=1024 context=256 scored=128 count=2
fi
budget=$("$python" -c 'import sys; print(",".join(str(float(n) * float(sys.argv[1])) for n in sys.argv[2:]))' \
  "$scale" "${tokens[@]}")
extra=()
[[ $device == cpu ]] || extra+=(--autocast)

mkdir -p "$directory"
for ((slice = 1; ; ++slice)); do
  status=0
  "$python" "$here/train.py" --directory "$directory" --device "$device" "${extra[@]}" "${shape[@]}" \
    --stages "$(IFS=,; echo "${lengths[*]}")" --tokens "$budget" --batch-tokens "$batch" --reach "$context" \
    --solved 0.985 --minutes "$minutes" --workers "$workers" --split || status=$?
  [[ $status != 0 ]] || break
  [[ $status == 3 ]] || exit "$status"
  if [[ $slice == "$slices" ]]; then
    echo "train_all.sh: stopped after $slice slices; the same command goes on from $directory"
    exit 3
  fi
done
"$python" "$here/export.py" "$directory/latest.pt" "$directory/ballast-large.gguf" --context "$context"
for form in "" --chat; do
  "$python" "$here/evaluate.py" "$directory/ballast-large.gguf" --lengths "$scored" --count "$count" \
    --device "$device" $form | tee "$directory/scores${form/--/-}.txt"
done
