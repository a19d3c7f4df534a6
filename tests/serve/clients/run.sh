#!/usr/bin/env bash
# Runs a client test; exits with 77 where node, Python or the network to install clients is missing.
#   run.sh api.mjs|page.mjs|api.py PROGRAM MODEL
set -euo pipefail
cd "$(dirname "$0")"
if [[ $1 == *.py ]]; then
  if [ ! -e venv ] && ! { python3 -m venv venv && venv/bin/pip install -q -r requirements.txt; } >/dev/null 2>&1; then
    rm -rf venv
    echo "skipped: no python3-venv, or pip could not install the clients of requirements.txt"
    exit 77
  fi
  exec venv/bin/python "$@"
fi
if ! command -v node >/dev/null || ! command -v npm >/dev/null; then
  echo "skipped: no node and npm; apt-get install nodejs npm"
  exit 77
fi
if [ ! -d node_modules ] && ! npm install --no-audit --no-fund --no-package-lock >/dev/null 2>&1; then
  echo "skipped: npm could not install the clients of package.json"
  exit 77
fi
exec node "$@"
