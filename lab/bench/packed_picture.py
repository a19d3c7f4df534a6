#!/usr/bin/env python3
"""docs/packed.svg from a basis for packing: how widely each coefficient of a token spreads, beside the steps.

    packed_picture.py MODEL.gguf.pack > docs/packed.svg
"""
import math
import struct
import sys

LEFT, RIGHT, TOP, BOTTOM = 70, 640, 46, 250
COLOURS = {16: "#1d4ed8", 32: "#2563eb", 64: "#60a5fa"}


def read(path):
    """Variances of the first group, N, and the presets (src/pack/basis.cc has the layout)."""
    with open(path, "rb") as file:
        data = file.read()
    at = 12

    def get(form):
        nonlocal at
        out = struct.unpack_from("<" + form, data, at)
        at += struct.calcsize("<" + form)
        return out

    size = get("Q")[0]
    at += size
    _, kv_heads, key_dim, value_dim, groups = get("5Q")
    assert groups == 1, "a model with one group of layers"
    layers = get("Q")[0]
    at += 4 * layers
    n = layers * kv_heads * (key_dim + value_dim)
    at += 4 * n
    for dim in [key_dim] * kv_heads + [value_dim] * kv_heads:
        at += layers * (4 + dim * (dim + 1))  # 2 bytes an element of the lower triangle
    k = get("Q")[0]
    variances = get(f"{k}f")
    at = len(data) - 4 - 36
    return variances, n, [get("Iff") for _ in range(3)]


def main():
    variances, n, presets = read(sys.argv[1])
    spread = [math.sqrt(v) for v in variances]
    high, low = math.log10(spread[0]) + 0.1, math.log10(min(p[1] for p in presets)) - 0.6

    def place(i, x):
        across = LEFT + (RIGHT - LEFT) * i / n
        return across, TOP + (BOTTOM - TOP) * (high - max(math.log10(x), low)) / (high - low)

    print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 300" width="720" height="300" '
          'font-family="sans-serif" font-size="12">')
    print('<rect width="720" height="300" fill="#fff"/>')
    points = [place(i, spread[i]) for i in range(0, len(spread), 8)]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    print(f'<polygon fill="#dbeafe" points="{LEFT},{BOTTOM} {line} {points[-1][0]:.1f},{BOTTOM}"/>')
    print(f'<polyline fill="none" stroke="#222" stroke-width="1.5" points="{line}"/>')
    print(f'<path stroke="#888" fill="none" d="M{LEFT} {TOP}V{BOTTOM}H{RIGHT}"/>')
    for divisor, step, _ in presets:
        y = place(0, step)[1]
        above = sum(s > step for s in spread)
        print(f'<path stroke="{COLOURS[divisor]}" stroke-dasharray="4 3" d="M{LEFT} {y:.1f}H{RIGHT}"/>')
        print(f'<text x="{RIGHT + 6}" y="{y + 4:.1f}" fill="{COLOURS[divisor]}">1/{divisor}</text>')
        print(f'<text x="{RIGHT - 6}" y="{y - 4:.1f}" fill="{COLOURS[divisor]}" text-anchor="end">{above} of {n} '
              'spread by more than a step</text>')
    print(f'<text x="10" y="20" fill="#222">A token is {n} numbers: keys and values of all layers. The '
          'line is how widely each spreads after the transform.</text>')
    print(f'<text x="10" y="36" fill="#222">Rounding to a step (dashed) leaves little of those below it: '
          'they cost hardly a bit. The basis has no more of them.</text>')
    print(f'<text x="{(LEFT + RIGHT) / 2}" y="{BOTTOM + 20}" fill="#222" text-anchor="middle">coefficients, the '
          'widest first</text>')
    print(f'<text x="{LEFT}" y="{BOTTOM + 20}" fill="#222" text-anchor="middle">1</text>')
    print(f'<text x="{RIGHT}" y="{BOTTOM + 20}" fill="#222" text-anchor="middle">{n}</text>')
    for power in range(math.ceil(low), math.floor(high) + 1):
        y = place(0, 10.0 ** power)[1]
        print(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" fill="#222" text-anchor="end">{10.0 ** power:g}</text>')
    print("</svg>")


if __name__ == "__main__":
    main()
