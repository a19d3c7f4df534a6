#!/usr/bin/env bash
# Installs the packages that Ballast is built with, where they are missing; the names are those of
# Debian 12 and Ubuntu 24.04. As root or with sudo it installs them; otherwise it prints the one
# command to run, and stops. CONTRIBUTING.md has the names of other systems.
#   ./setup.sh             what a build and its tests need
#   ./setup.sh --arm64     also what ./test.sh --arm64 needs
#   ./setup.sh --release   also what ./release.sh needs
set -euo pipefail
cd "$(dirname "$0")"

packages=(
  g++ cmake ninja-build pkg-config ccache clang-format
  libhwy-dev libsentencepiece-dev libicu-dev zlib1g-dev
  libturbojpeg0-dev libpng-dev libwebp-dev libstemmer-dev
  nlohmann-json3-dev libcli11-dev libfmt-dev libmicrohttpd-dev libedit-dev libcurl4-openssl-dev libzip-dev
  libgtest-dev libgmock-dev libbenchmark-dev
  librsvg2-bin python3-numpy poppler-utils
  pybind11-dev python3-dev
  libprotobuf-dev  # SentencePiece's pkg-config file asks for it since Debian 13, its package does not
)
# Without SentencePiece, whose packages of two processors exclude each other.
arm64_libraries=(
  libhwy-dev libicu-dev zlib1g-dev libturbojpeg0-dev libpng-dev libwebp-dev libstemmer-dev
  libfmt-dev libmicrohttpd-dev libedit-dev libcurl4-openssl-dev libzip-dev libgtest-dev libgmock-dev
)
arm64=
case ${1:-} in
  "") ;;
  --arm64) arm64=yes; packages+=(crossbuild-essential-arm64 qemu-user "${arm64_libraries[@]/%/:arm64}") ;;
  --release) packages+=(patchelf dpkg-dev python3-venv advancecomp) ;;
  *) echo "setup.sh: unknown option '$1'; known: --arm64 --release" >&2; exit 2 ;;
esac

if ! command -v apt-get >/dev/null; then
  system=$(. /etc/os-release 2>/dev/null && echo "${PRETTY_NAME:-}" || true)
  echo "setup.sh knows Debian's and Ubuntu's packages, not those of ${system:-this system}." >&2
  echo "CONTRIBUTING.md, 'Other systems', names the packages of Fedora, Arch and Homebrew." >&2
  exit 1
fi

native=$(dpkg --print-architecture)
installed() {  # NAME or NAME:ARCHITECTURE
  local architecture=$native
  [[ $1 == *:* ]] && architecture=${1#*:}
  dpkg-query -W -f='${db:Status-Status}:${Architecture}\n' "${1%:*}" 2>/dev/null |
    grep -Eqx "installed:($architecture|all)"
}
missing=()
for package in "${packages[@]}"; do
  installed "$package" || missing+=("$package")
done

if [ ${#missing[@]} -ne 0 ]; then
  foreign=
  [ -n "$arm64" ] && foreign="dpkg --add-architecture arm64"
  install="apt-get install -y --no-install-recommends ${missing[*]}"
  if [ "$(id -u)" -eq 0 ]; then
    run=()
  elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
    run=(sudo)
  else
    echo "setup.sh: missing packages; run this, then try again:" >&2
    echo "  ${foreign:+sudo $foreign && }sudo apt-get update && sudo $install" >&2
    exit 1
  fi
  echo "Installing ${missing[*]}" >&2
  log=$(mktemp)
  trap 'rm -f "$log"' EXIT
  if ! { ${foreign:+"${run[@]}" $foreign} && "${run[@]}" apt-get update &&
         "${run[@]}" env DEBIAN_FRONTEND=noninteractive $install; } >"$log" 2>&1; then
    tail -n 5 "$log" >&2
    echo "setup.sh: the packages could not be installed; see above" >&2
    exit 1
  fi
fi

# Unpacked where cmake/arm64.cmake looks.
unpacked=$PWD/.cache/arm64
pc=usr/lib/aarch64-linux-gnu/pkgconfig/sentencepiece.pc
if [ -n "$arm64" ] && ! grep -qs "^prefix=$unpacked/usr$" "$unpacked/$pc"; then
  rm -rf "$unpacked"
  mkdir -p "$unpacked/debs"
  (cd "$unpacked/debs" && apt-get download libsentencepiece-dev:arm64 libsentencepiece0:arm64) >&2
  for deb in "$unpacked"/debs/*.deb; do dpkg-deb -x "$deb" "$unpacked"; done
  sed -i "s,^prefix=.*,prefix=$unpacked/usr," "$unpacked/$pc"
fi
