"""The picture of lab/docs/evidence.md: bytes against points lost, a line a method (lab/bench/real_page.py draws it)."""
import html
import math

WIDTH, HEIGHT = 720, 560
LEFT, RIGHT, TOP, BOTTOM = 74, 500, 96, 490
LETTER = 18
STYLE = """
text { font-family: system-ui, sans-serif; fill: #1f2328; font-size: 18px }
.page { fill: #ffffff } .soft { fill: #59636e } .rail { stroke: #d1d9e0; stroke-width: 1 }
.line { fill: none; stroke-width: 3 } .bar { stroke-width: 1.5; opacity: .6 }
.other { stroke: #818b98 } .ours { stroke: #1a7f37 } .dot.other { fill: #818b98 } .dot.ours { fill: #1a7f37 }
.name.ours { stroke: none; font-weight: 700 } .name.other { stroke: none }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc }
  .page { fill: #0d1117 } .soft { fill: #9198a1 } .rail { stroke: #3d444d }
  .other { stroke: #7d8590 } .ours { stroke: #3fb950 } .dot.other { fill: #7d8590 } .dot.ours { fill: #3fb950 }
}"""
NAMES = {"streaming-llm": "start and window", "uniform": "random tokens", "packed": "packed, at rest"}
OURS = ("packed", "calibrated", "replay", "exact")  # `exact` in few bits: see named()
SIZES = [1, 1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64]


def one_line_of_types(lines):
    """The exact cache in fewer bits as one line, with the exact one as its first point."""
    types = [(name, found) for name, found in lines if name.startswith("exact")]
    out = [line for line in lines if not line[0].startswith("exact")]
    if types:
        out.insert(0, ("exact, 4 and 2 bits", [(1.0, 0.0, 0.0)]
                       + sorted((p for _, found in types for p in found), reverse=True)))
    return out


def apart(places, least):
    """The places, moved down as little as keeps them `least` apart, from the top."""
    out = []
    for place in sorted(places):
        out.append(max(place, out[-1] + least) if out else place)
    return out


def drawn(lines):
    """The SVG of (method, [(share of the bytes, mean of points, half of its interval)])."""
    lines = one_line_of_types(lines)
    lost = max([-low + half for _, found in lines for _, low, half in found] or [10])
    most = 20 * math.ceil(max(20, lost) / 20)

    def across(size):
        return LEFT + (RIGHT - LEFT) * math.log2(1 / size) / 6

    def down(points):
        return TOP + (BOTTOM - TOP) * -points / most

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
           'role="img">',
           "<title>Points lost against the bytes of the cache: " + html.escape("; ".join(
               f"{NAMES.get(name, name)}: " + ", ".join(f"{p:+.0f} at {s:.3g}" for s, p, _ in found)
               for name, found in lines)) + "</title>",
           f"<style>{STYLE}\n</style>", f'<rect class="page" width="{WIDTH}" height="{HEIGHT}" rx="12"/>',
           '<text x="28" y="38" style="font-size:26px;font-weight:700">Fewer bytes, points lost</text>',
           '<text x="28" y="66" class="soft">of 100, question unknown; bars are 95% intervals</text>']
    for points in range(0, most + 1, 20):
        y = down(-points)
        out.append(f'<path class="rail" d="M{LEFT} {y:.1f}H{RIGHT}"/>')
        out.append(f'<text x="{LEFT - 10}" y="{y + 6:.1f}" text-anchor="end" class="soft">{"−" * (points > 0)}{points}'
                   '</text>')
    for size in SIZES:
        label = "exact" if size == 1 else f"1/{1 / size:.0f}"
        out.append(f'<text x="{across(size):.1f}" y="{BOTTOM + 28}" text-anchor="middle" class="soft">{label}</text>')
    out.append(f'<text x="{(LEFT + RIGHT) / 2}" y="{BOTTOM + 54}" text-anchor="middle" class="soft">bytes of the cache'
               "</text>")
    ends = sorted((down(found[-1][1]), name) for name, found in lines)
    labels = dict(zip((name for _, name in ends), apart([y for y, _ in ends], LETTER + 4)))
    for name, found in lines:
        kind = "ours" if name.startswith(OURS) else "other"
        points = [(across(size), down(mean), 100 * half / most) for size, mean, half in found]
        out.append(f'<polyline class="line {kind}" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y, _ in points)}"/>')
        for (x, y, _), (_, mean, half) in zip(points, found):
            if half > 0:
                out.append(f'<path class="bar {kind}" d="M{x:.1f} {down(mean + half):.1f}V{down(mean - half):.1f}"/>')
            out.append(f'<circle class="dot {kind}" cx="{x:.1f}" cy="{y:.1f}" r="4"/>')
        x, y, _ = points[-1]
        at = labels[name]
        out.append(f'<path class="rail" d="M{x + 6:.1f} {y:.1f}L{RIGHT + 18} {at:.1f}"/>')
        out.append(f'<text x="{RIGHT + 24}" y="{at + 6:.1f}" class="name {kind}">{html.escape(NAMES.get(name, name))}'
                   "</text>")
    return "\n".join(out + ["</svg>", ""])
