#!/usr/bin/env bash
# Makes the tarball and the wheel, and uses each in a clean Debian 12.
#     tarball.sh SOURCE WORK
# Exits with 77 unless it is root and debootstrap and a mirror (BALLAST_MIRROR) can be had.
set -euo pipefail
source=$1 work=$2 test=tarball
. "$(dirname "$0")/root.sh"

mkdir -p "$work"
make_root
export BALLAST_DIST=$work/dist
rm -rf "$BALLAST_DIST"
"$source/release.sh" tarball wheel >"$work/release.log" 2>&1 || { tail -n 20 "$work/release.log"; exit 1; }
(cd "$BALLAST_DIST" && sha256sum --quiet -c SHA256SUMS)
# Ubuntu 22.04 has these.
grep "asks for GLIBC_2.3[0-5] and GLIBCXX_3.4.\(30\|2.\)$" "$work/release.log"
mkdir "$root/dist"
cp "$BALLAST_DIST"/* "$source/models/ballast-mini.gguf" "$source/examples/story.txt" "$root/dist"

inside '
  cd /opt
  tar -xzf /dist/ballast-linux-*.tar.gz
  mv ballast-linux-* moved
  (cd moved && sha256sum --quiet -c SHA256SUMS)
  test -s moved/share/man/man1/ballast-eval-lines.1
  test -s moved/share/bash-completion/completions/ballast
  test -s moved/share/fish/vendor_completions.d/ballast.fish
  test -s moved/share/doc/ballast/licences/libicu72
  moved/bin/ballast --version
  moved/bin/ballast --check eval lines -m /dist/ballast-mini.gguf
  moved/bin/ballast run -m /dist/ballast-mini.gguf "Once upon a time" --raw -n 4 -q >/dist/said
  cat /dist/said
'
quietly "apt-get update; apt-get install -y --no-install-recommends python3-venv python3-numpy"
inside '
  python3 -m venv --system-site-packages /opt/env
  /opt/env/bin/pip install -q --disable-pip-version-check --no-index --no-deps /dist/*.whl
  /opt/env/bin/ballast run -m /dist/ballast-mini.gguf "Once upon a time" --raw -n 4 -q | cmp - /dist/said
  test -s /opt/env/share/man/man1/ballast-run.1
  test -s /opt/env/share/bash-completion/completions/ballast
  /opt/env/bin/python -c "import ballast; print(ballast.__version__, len(ballast.methods()), \"methods\")"
'
echo "tarball and wheel: unpacked, installed and used"
