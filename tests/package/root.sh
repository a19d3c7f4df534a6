# A clean Debian 12 in $work/root, for tests that source this file; $test is the test's name.
mirror=${BALLAST_MIRROR:-http://deb.debian.org/debian}
root=$work/root

skip() { echo "$test: $1: skipped"; exit 77; }

# Exits with 77 unless it is root, and debootstrap and a mirror (BALLAST_MIRROR) can be had.
make_root() {
  [ "$(id -u)" -eq 0 ] || skip "not root"
  command -v debootstrap >/dev/null || skip "no debootstrap"
  umount "$root/proc" 2>/dev/null || true  # of a run that was cut off
  rm -rf "$root"
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
  mount -t proc proc "$root/proc" || skip "no right to mount"
  trap 'umount "$root/proc"' EXIT
}

# An environment of its own, so that nothing of this machine is found.
inside() { env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C DEBIAN_FRONTEND=noninteractive \
             http_proxy="${http_proxy:-}" chroot "$root" /bin/sh -ec "$1"; }
quietly() { inside "$1" >"$work/chroot.log" 2>&1 || { tail -n 20 "$work/chroot.log"; exit 1; }; }
