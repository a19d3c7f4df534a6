#!/usr/bin/env bash
# Runs a client test; exits with 77 where node or the network to install clients is missing.
#   run.sh api.mjs|page.mjs PROGRAM MODEL
set -euo pipefail
cd "$(dirname "$0")"
if ! command -v node >/dev/null || ! command -v npm >/dev/null; then
  echo "skipped: no node and npm; apt-get install nodejs npm"
  exit 77
fi
if [ ! -d node_modules ] && ! npm install --no-audit --no-fund --no-package-lock >/dev/null 2>&1; then
  echo "skipped: npm could not install the clients of package.json"
  exit 77
fi
exec node "$@"
