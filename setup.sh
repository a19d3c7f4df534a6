#!/usr/bin/env bash
# Installs the Debian packages that Ballast is built with, where they are missing.
# As root or with sudo it installs them; otherwise it prints the one command to run, and stops.
set -euo pipefail

packages=(
  g++ cmake ninja-build pkg-config ccache clang-format
  libhwy-dev librandom123-dev libsentencepiece-dev libicu-dev zlib1g-dev
  libturbojpeg0-dev libpng-dev libwebp-dev libstemmer-dev
  nlohmann-json3-dev libcli11-dev libfmt-dev libmicrohttpd-dev libedit-dev libcurl4-openssl-dev libzip-dev
  libgtest-dev libgmock-dev libbenchmark-dev
  librsvg2-bin python3-numpy poppler-utils
  pybind11-dev python3-dev
)

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$status" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

install="apt-get install -y --no-install-recommends ${missing[*]}"
if [ "$(id -u)" -eq 0 ]; then
  run=()
elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
  run=(sudo)
else
  echo "setup.sh: missing packages; run this, then try again:" >&2
  echo "  sudo apt-get update && sudo $install" >&2
  exit 1
fi
echo "Installing ${missing[*]}" >&2
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! { "${run[@]}" apt-get update && "${run[@]}" env DEBIAN_FRONTEND=noninteractive $install; } \
    >"$log" 2>&1; then
  tail -n 5 "$log" >&2
  echo "setup.sh: the packages could not be installed; see above" >&2
  exit 1
fi
