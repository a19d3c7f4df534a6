#!/usr/bin/env bash
# ./demo.sh asks its questions twice and ends with a page of one file that holds what it promises; where headless
# Chromium is installed, it draws the page in both colour schemes and at a phone's width.
set -euo pipefail
cd "$1"
said=$(MODEL=models/ballast-mini.gguf ./demo.sh)
for part in 'has read examples/story.txt' 'an eighth of it' 'time to read' 'memory of the cache'; do
  grep -qF "$part" <<<"$said" || { echo "demo.sh says no '$part'"; exit 1; }
done
page=results/demo.html
for part in 'The model ballast-mini.gguf was asked' 'What each method kept of one text' \
    'class="maps"' '<details><summary>Table' '<h2>Commands</h2>'; do
  grep -qF "$part" "$page" || { echo "$page: no '$part'"; exit 1; }
done
if grep -qE 'src=|href="http|@import|<link' "$page"; then
  echo "$page: something comes from outside"
  exit 1
fi
chromium=$(command -v chromium || true)
if [ -z "$chromium" ]; then
  echo "chromium is not installed: the page is not drawn"
  exit 0
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
shot() {
  "$chromium" --headless --no-sandbox --disable-gpu --hide-scrollbars --user-data-dir="$work/profile" \
    --screenshot="$work/$1.png" "${@:2}" "file://$PWD/$page" >/dev/null 2>&1
  [ -s "$work/$1.png" ] || { echo "$page: chromium drew nothing ($1)"; exit 1; }
}
shot light --window-size=1200,3000
shot dark --window-size=1200,3000 --force-dark-mode --blink-settings=preferredColorScheme=0
shot phone --window-size=390,3000
[ "$(sha256sum <"$work/light.png")" != "$(sha256sum <"$work/dark.png")" ] ||
  { echo "$page: light and dark look the same"; exit 1; }
