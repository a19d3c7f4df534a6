#!/usr/bin/env bash
# Makes the tarball for ARM64, and runs it under qemu with no libraries of this machine but the system's.
#     arm64.sh SOURCE WORK
# Exits with 77 where ./setup.sh --arm64 has not been.
set -euo pipefail
source=$1 work=$2
for program in aarch64-linux-gnu-g++ qemu-aarch64; do
  command -v $program >/dev/null || { echo "tarball.arm64: no $program: skipped"; exit 77; }
done

rm -rf "$work"
mkdir -p "$work"
cd "$work"
BALLAST_DIST=$work/dist "$source/release.sh" --arm64 >release.log 2>&1 || { tail -n 20 release.log; exit 1; }
(cd dist && sha256sum --quiet -c SHA256SUMS)
grep "asks for GLIBC_2.3[0-5] and GLIBCXX_3.4.\(30\|2.\)$" release.log
tar -xzf dist/ballast-linux-aarch64.tar.gz
mv ballast-linux-aarch64 moved
(cd moved && sha256sum --quiet -c SHA256SUMS)
test -s moved/share/man/man1/ballast-run.1
test -s moved/share/doc/ballast/licences/libicu72

qemu-aarch64 -E LD_TRACE_LOADED_OBJECTS=1 moved/bin/ballast >libraries
grep -q "moved/bin/../lib/libicudata" libraries
if grep -vE 'moved/bin/\.\./lib/|^\s*(linux-vdso|/lib/ld-linux|lib(c|m|resolv|stdc\+\+|gcc_s)\.so)' libraries; then
  echo "these libraries are not in the tarball"
  exit 1
fi
qemu-aarch64 moved/bin/ballast --version
qemu-aarch64 moved/bin/ballast run -m "$source/models/ballast-mini.gguf" "Once upon a time" --raw -n 4 -q | grep .
echo "tarball.arm64: unpacked and used"
