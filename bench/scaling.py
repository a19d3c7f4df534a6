#!/usr/bin/env python3
"""What ranks send and how long that takes, for docs/scaling.md: the formulas that RanksTest counts.

    bench/scaling.py          writes the tables of docs/scaling.md
    bench/scaling.py --check  exits with 1 if they differ
"""

import pathlib
import sys

PAGE = pathlib.Path(__file__).parent.parent / "docs" / "scaling.md"
# layers, width, heads, KV heads, dimension of a head, width of the feed-forward block
MODELS = {
    "Qwen2.5-Coder 0.5B": (24, 896, 14, 2, 64, 4864),
    "Llama 3.1 8B": (32, 4096, 32, 8, 128, 14336),
}
RATE = 50e9  # multiplications a second and core: between what an EPYC's AVX2 and AVX-512 were seen to do
CORES = 64
LINKS = {"1 Gbit/s": 125e6, "10": 1.25e9, "100": 12.5e9}


def cost(model, n):
    """Multiplications over tokens 0 to n (src/model/prefill_cost.h)."""
    layers, width, heads, kv, dim, hidden = model
    weights = width * (2 * heads * dim + 2 * kv * dim + 3 * hidden)
    return layers * (weights * n + heads * dim * n * n)


def shares(model, n, ranks):
    """Tokens of each rank: equal work (divide_text())."""
    begins = [0]
    for r in range(1, ranks):
        low, high = begins[-1], n
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if cost(model, middle) < cost(model, n) * r / ranks else (low, middle)
        begins.append(low)
    begins.append(n)
    return [b - a for a, b in zip(begins, begins[1:])]


def busiest(model, n, ranks):
    """Bytes that the last rank receives while the text is read: keys and values in bf16."""
    layers, _, _, kv, dim, _ = model
    return layers * sum(shares(model, n, ranks)[:-1]) * kv * 2 * dim * 2


def token(model, ranks):
    """Bytes that a rank receives for each token that is made."""
    layers, _, heads, _, dim, _ = model
    return layers * (ranks - 1) * heads * (dim + 2) * 4


def size(b):
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if b < 1000 or unit == "TB":
            return f"{b:.3g} {unit}"
        b /= 1000
    return ""


def time(s):
    for limit, unit, div in ((1e-3, "µs", 1e-6), (1, "ms", 1e-3), (120, "s", 1), (7200, "min", 60),
                             (172800, "h", 3600)):
        if s < limit:
            return f"{s / div:.3g} {unit}"
    return f"{s / 86400:.3g} days"


def table(name, model):
    lines = [f"**{name}**", "",
             "| tokens | ranks | work of a rank | received by the last | " +
             " | ".join(LINKS) + " | sent for a token |",
             "|---|---|---|---|" + "---|" * len(LINKS) + "---|"]
    for n in (10**6, 10**7, 10**8):
        for ranks in (1, 8, 64, 1024):
            b = busiest(model, n, ranks)
            seconds = cost(model, n) / ranks / RATE / CORES
            links = " | ".join(time(b / rate) if b else "–" for rate in LINKS.values())
            t = token(model, ranks)
            lines.append(f"| {n:,} | {ranks:,} | {time(seconds)} | {size(b) if b else '–'} | {links} | "
                         f"{size(t) if t else '–'} |")
    return "\n".join(lines)


text = PAGE.read_text()
before, rest = text.split("<!-- tables -->\n", 1)
_, after = rest.split("<!-- end -->", 1)
made = before + "<!-- tables -->\n" + "\n\n".join(table(*m) for m in MODELS.items()) + "\n<!-- end -->" + after
if "--check" in sys.argv:
    sys.exit(made != text and "docs/scaling.md differs from bench/scaling.py: run it")
PAGE.write_text(made)
