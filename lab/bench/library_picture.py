#!/usr/bin/env python3
"""The README's picture of a library, from figures that lab/bench/library.py printed.

    library_picture.py [lab/bench/library_picture.json] > docs/library.svg

A bar is as long as its value, beside "most" of its group or the longest. Rows without a value are left out, and groups
without a row. Letters are large enough for a phone; colours follow the reader's light or dark.
"""
import html
import json
import pathlib
import sys

WIDTH, EDGE, BAR = 720, 28, 26
LETTER = 0.6  # of a letter's height: its mean width, or a little more
STYLE = """
text { font-family: system-ui, sans-serif; fill: #1f2328 }
.page { fill: #ffffff } .rail { fill: #eff2f5 } .soft { fill: #59636e }
.other { fill: #818b98 } .ours { fill: #1a7f37 }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc }
  .page { fill: #0d1117 } .rail { fill: #212830 } .soft { fill: #9198a1 }
  .other { fill: #7d8590 } .ours { fill: #3fb950 }
}"""


def text(x, y, size, words, more=""):
    return f'<text x="{x}" y="{y}" font-size="{size}" {more}>{html.escape(words)}</text>'


def rows_of(group, y):
    """The rows' lines, and where the next goes."""
    rows = [row for row in group["rows"] if row["value"] is not None]
    most = group.get("most") or max(row["value"] for row in rows)
    out = []
    for row in rows:
        ours = row.get("ours", False)
        weight = 'font-weight="700"' if ours else ""
        out.append(text(EDGE, y + 22, 24, row["label"], weight))
        out.append(text(WIDTH - EDGE, y + 22, 24, row["shown"], f'text-anchor="end" {weight}'))
        wide = max(3, (WIDTH - 2 * EDGE) * row["value"] / most)
        out.append(f'<rect class="rail" x="{EDGE}" y="{y + 32}" width="{WIDTH - 2 * EDGE}" height="{BAR}" rx="4"/>')
        out.append(f'<rect class="{"ours" if ours else "other"}" x="{EDGE}" y="{y + 32}" width="{wide:.1f}" '
                   f'height="{BAR}" rx="{min(4, wide / 2):.1f}"/>')
        y += 32 + BAR + 14
    return out, y


def folded(words, size):
    """Lines that fit between the edges."""
    lines = [""]
    for word in words.split():
        if len(lines[-1] + word) * size * LETTER > WIDTH - 2 * EDGE:
            lines.append("")
        lines[-1] += word + " "
    return [line.strip() for line in lines]


def drawn(figures):
    """The picture of {"title", "foot", "groups": [{"title", "rows": [{"label", "value", "shown", "ours"}]}]}."""
    out, y = [], 20
    for line in folded(figures["title"], 32):
        out.append(text(EDGE, y + 32, 32, line, 'font-weight="700"'))
        y += 42
    for group in figures["groups"]:
        if all(row["value"] is None for row in group["rows"]):
            continue
        out.append(text(EDGE, y + 36, 24, group["title"], 'class="soft"'))
        rows, y = rows_of(group, y + 50)
        out += rows
    for line in folded(figures["foot"], 20):
        out.append(text(EDGE, y + 30, 20, line, 'class="soft"'))
        y += 28
    y += 30
    said = "; ".join(f"{group['title']}: " + ", ".join(f"{row['label']} {row['shown']}" for row in group["rows"]
                                                       if row["value"] is not None) for group in figures["groups"]
                     if any(row["value"] is not None for row in group["rows"]))
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" width="{WIDTH}" height="{y}" role="img">',
        f"<title>{html.escape(figures['title'])}. {html.escape(said)}</title>", f"<style>{STYLE}\n</style>",
        f'<rect class="page" width="{WIDTH}" height="{y}" rx="12"/>', *out, "</svg>"])


def main():
    default = pathlib.Path(__file__).with_suffix(".json")
    figures = json.loads(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else default).read_text(encoding="utf-8"))
    print(drawn(figures))


if __name__ == "__main__":
    main()
