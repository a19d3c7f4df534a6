#!/usr/bin/env bash
# Builds Ballast and runs its tests.
#   ./test.sh            everything that CI runs
#   ./test.sh --long     also the tests with the label `long` (minutes)
#   ./test.sh --asan     under AddressSanitizer and UBSan, in build-asan
#   ./test.sh --tsan     under ThreadSanitizer, in build-tsan
#   ./test.sh --arm64    for ARM64, under qemu, in build-arm64
# What follows `--` goes to ctest: ./test.sh -- -R cache
set -euo pipefail
cd "$(dirname "$0")"

preset=release
setup=
leave_out=long
while [ $# -gt 0 ]; do
  case $1 in
    --long) leave_out= ;;
    --asan) preset=asan ;;
    --tsan) preset=tsan ;;
    --arm64) preset=arm64 setup=--arm64 ;;
    --) shift; break ;;
    *) echo "test.sh: unknown option '$1'; known: --long --asan --tsan --arm64 -- (options of ctest)" >&2; exit 2 ;;
  esac
  shift
done

./setup.sh $setup
cmake --preset "$preset" >/dev/null
if [ "$preset" = release ]; then  # first, as it takes seconds
  cmake --build --preset release --target format-check
fi
cmake --build --preset "$preset"
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=1:allocator_may_return_null=1}
export LSAN_OPTIONS=${LSAN_OPTIONS:-suppressions=$PWD/cmake/lsan.supp:print_suppressions=0}
# Documents, headers, packages: a sanitizer or another processor sees nothing in them.
[ "$preset" = release ] || leave_out=${leave_out:+$leave_out|}release
ctest --preset "$preset" -j "$(nproc)" ${leave_out:+-LE "$leave_out"} "$@"
