#!/usr/bin/env bash
# Changes one operator, constant or comparison of the core at a time and counts which changes the
# tests notice. Works on a copy in build-mutants; options are those of tests/mutate.py:
#   ./mutate.sh --minutes 60                     a sample, the same for the same --seed
#   ./mutate.sh --minutes 10 --rooms methods     of these folders of src
set -euo pipefail
cd "$(dirname "$0")"
exec python3 tests/mutate.py "$@"
