#!/usr/bin/env bash
# Builds the Debian packages, installs them in a clean Debian 12, uses and removes them.
#     debian.sh SOURCE WORK [BUILD]      BUILD: a build folder to go on with
# Exits with 77 unless it is root and debootstrap and a mirror (BALLAST_MIRROR) can be had.
set -euo pipefail
source=$1 work=$2 build=${3:-$2/build}
mirror=${BALLAST_MIRROR:-http://deb.debian.org/debian}

skip() { echo "packages: $1: skipped"; exit 77; }
[ "$(id -u)" -eq 0 ] || skip "not root"
for tool in debootstrap dpkg-shlibdeps; do
  command -v $tool >/dev/null || skip "no $tool"
done

mkdir -p "$work"
umount "$work/root/proc" 2>/dev/null || true  # of a run that was cut off
rm -rf "$work/debs" "$work/root"
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

root=$work/root
if [ ! -s "$work/debian.tar" ]; then  # kept for the next run
  debootstrap --variant=minbase bookworm "$root" "$mirror" >"$work/debootstrap.log" 2>&1 ||
    { tail -n 3 "$work/debootstrap.log"; skip "no Debian from $mirror"; }
  tar -C "$root" --numeric-owner -cf "$work/debian.part" .
  mv "$work/debian.part" "$work/debian.tar"
  rm -rf "$root"
fi
mkdir "$root"
tar -C "$root" --numeric-owner -xpf "$work/debian.tar"
cp /etc/apt/apt.conf.d/*proxy* "$root/etc/apt/apt.conf.d/" 2>/dev/null || true
mkdir "$root/debs"
cp "$work"/debs/*.deb "$source/examples/c/cache.c" "$source/examples/c/generate.c" \
  "$source/models/ballast-mini.gguf" "$root/debs"
mount -t proc proc "$root/proc" || skip "no right to mount"
trap 'umount "$root/proc"' EXIT

# An environment of its own, so that nothing of this machine is found.
inside() { env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C DEBIAN_FRONTEND=noninteractive \
             http_proxy="${http_proxy:-}" chroot "$root" /bin/sh -ec "$1"; }
quietly() { inside "$1" >"$work/chroot.log" 2>&1 || { tail -n 20 "$work/chroot.log"; exit 1; }; }

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
