#!/usr/bin/env bash
# Builds the Debian packages, installs them in a clean Debian 12, uses and removes them.
#     debian.sh SOURCE WORK [BUILD]      BUILD: a build folder to go on with
# Exits with 77 unless it is root and debootstrap and a mirror (BALLAST_MIRROR) can be had.
set -euo pipefail
source=$1 work=$2 build=${3:-$2/build} test=packages
. "$(dirname "$0")/root.sh"
command -v dpkg-shlibdeps >/dev/null || skip "no dpkg-shlibdeps"

mkdir -p "$work"
rm -rf "$work/debs"
make_root
cd "$source"
rm -f "$build"/*.deb
cmake --preset packages -B "$build" >"$work/build.log" 2>&1 ||
  { tail -n 20 "$work/build.log"; exit 1; }
cmake --build "$build" --target package >>"$work/build.log" 2>&1 ||
  { tail -n 20 "$work/build.log"; exit 1; }
mkdir "$work/debs"
mv "$build"/*.deb "$work/debs"
for deb in "$work"/debs/*.deb; do
  dpkg-deb --field "$deb" Package Version Depends
  dpkg-deb --contents "$deb" >"$deb.contents"
  grep -q "/usr/share/doc/$(dpkg-deb --field "$deb" Package)/copyright$" "$deb.contents" ||
    { echo "$deb has no copyright file"; exit 1; }
done
shopt -s nullglob
debs=("$work"/debs/*.deb)
[ ${#debs[@]} -eq 4 ] || { echo "expected 4 packages: ${debs[*]}"; exit 1; }

mkdir "$root/debs"
cp "$work"/debs/*.deb "$source/examples/c/cache.c" "$source/examples/c/generate.c" \
  "$source/models/ballast-mini.gguf" "$root/debs"
quietly "apt-get update; apt-get install -y --no-install-recommends /debs/*.deb gcc libc6-dev pkg-config"
inside '
  names="libballast0 libballast-dev ballast python3-ballast"
  for name in $names; do dpkg -L $name; done | sort -u >/debs/files
  ballast --version
  test -s /usr/share/man/man1/ballast-eval-lines.1
  test -s /usr/share/bash-completion/completions/ballast
  ballast run -m /debs/ballast-mini.gguf "Once upon a time" --raw -n 4 -q
  cd /debs
  python3 -c "
import ballast
print(ballast.__version__, len(ballast.methods()), \"methods\")
print(len(ballast.evaluate(\"lines\", model=\"/debs/ballast-mini.gguf\", methods=[\"exact\", \"uniform\"],
                           bytes=0.5, lines=[10], repeat=1, max_tokens=4)), \"records\")"
  cc -Wall -Werror cache.c -o cache $(pkg-config --cflags --libs ballast) -lm
  ./cache
  cc -Wall -Werror generate.c -o generate $(pkg-config --cflags --libs ballast)
  ./generate ballast-mini.gguf "Once upon a time"
  # Nothing of the packages remains.
  apt-get purge -y $names >/dev/null 2>&1
  left=$(while read -r path; do [ -d "$path" ] || [ ! -e "$path" ] || echo "$path"; done <files
         find / -xdev -path /debs -prune -o -path /proc -prune -o -iname "*ballast*" -print)
  [ -z "$left" ] || { echo "left after removal:"; echo "$left"; exit 1; }
'
echo "packages: installed, used and removed"
