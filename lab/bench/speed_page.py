#!/usr/bin/env python3
"""The tables of speed in lab/docs/performance.md, lab/docs/evidence.md and lab/docs/scaling.md, from
lab/results/speed/*.json.

    lab/bench/speed_page.py            writes the tables
    lab/bench/speed_page.py --check    exits with 1 if they are others

Each file is what `ballast bench --against lab/bench/peers/llama-bench --json=FILE` wrote, or, for streams,
`ballast bench --serve --json=FILE` with what `lab/bench/peers/llama-bench --streams` printed as `peer`. In costs/ and
pays/ are files of `ballast bench --json=FILE`: of many methods, and of exact and an eighth by instruction set. In
throughput/ are, likewise, those of `ballast eval throughput --json=FILE`."""
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SPEED = ROOT / "lab/results/speed"
VECTORS = {"avx2": "AVX2", "avx512": "AVX-512"}
MADE = re.compile(r"<!-- (alone|streams|costs|pays|throughput) -->\n.*?<!-- end -->\n", re.S)


def seconds(x):
    return f"{x:.2f} s" if x < 10 else f"{x:.1f} s"


def alone():
    out = ["| model | prompt | cache | first token | beside llama.cpp | a token | beside llama.cpp |",
           "|---|---|---|---|---|---|---|"]
    for path in sorted(SPEED.glob("*.json"), key=lambda p: json.loads(p.read_text())["weight_bytes"]):
        data = json.loads(path.read_text())
        if data.get("benchmark") == "serve":
            continue
        peers = {r["prompt"]: r for r in data["peer"]["results"]}
        for row in sorted(data["results"], key=lambda r: r["prompt"]):
            cache = "exact" if row["method"] == "exact" else row["method"].partition("bytes=")[2]
            peer = peers[row["prompt"]]
            token = row["decode_seconds_per_token"]
            out.append(f"| {data['model']} | {row['prompt']:,} | {cache} | {seconds(row['prompt_seconds'])} | "
                       f"{peer['prompt_seconds'] / row['prompt_seconds']:.1f}× | {1e3 * token:.1f} ms | "
                       f"{peer['decode_seconds'] / peer['generated'] / token:.1f}× |")
    return out


def streams():
    data = json.loads((SPEED / "streams.json").read_text())
    peers = {(r["prompt"], r["streams"]): r for r in data["peer"]["results"]}
    out = ["| prompt | streams | first token | tokens/s | llama.cpp: all prompts | tokens/s |",
           "|---|---|---|---|---|---|"]
    for row in data["results"]:
        peer = peers[row["prompt"], row["streams"]]
        out.append(f"| {row['prompt']:,} | {row['streams']} | {seconds(row['first_token_median'])} "
                   f"({seconds(row['first_token_p95'])}) | {row['tokens_per_second']:.1f} | "
                   f"{seconds(peer['prompt_seconds'])} | {peer['tokens_per_second']:.1f} |")
    return out


def pays():
    """Memory and times of exact and an eighth, by length."""
    out = ["| vectors | model | text | exact cache | an eighth | first token | a token: exact | an eighth |",
           "|---|---|---|---|---|---|---|---|"]
    for path in sorted((SPEED / "pays").glob("*/*.json"),
                       key=lambda p: (p.parent.name, json.loads(p.read_text())["weight_bytes"])):
        data = json.loads(path.read_text())
        for prompt in sorted({r["prompt"] for r in data["results"]}):
            exact, eighth = ([r for r in data["results"] if r["prompt"] == prompt and (r["method"] == "exact") == is_exact]
                             for is_exact in (True, False))
            exact, eighth = exact[0], eighth[0]
            token, small = (1e3 * r["decode_seconds_per_token"] for r in (exact, eighth))
            out.append(f"| {VECTORS[path.parent.name]} | {data['model']} | {prompt:,} | "
                       f"{exact['cache_bytes'] / 2**20:.0f} MiB | "
                       f"{eighth['cache_bytes'] / 2**20:.1f} MiB | "
                       f"{(eighth['prompt_seconds'] + eighth['compress_seconds']) / exact['prompt_seconds']:.2f}× | "
                       f"{token:.1f} ms | {small:.1f} ms |")
    return out


def costs():
    """Times and memory of each method, beside the exact cache's."""
    out = []
    for path in sorted((SPEED / "costs").glob("*.json")):
        data = json.loads(path.read_text())
        exact = next(row for row in data["results"] if row["method"] == "exact")
        out += ["", f"**{data['model']}**, {exact['prompt']:,} tokens: exact takes {seconds(exact['prompt_seconds'])} to the "
                f"first token, {1e3 * exact['decode_seconds_per_token']:.1f} ms for each after it.", "",
                "| method | cache | first token | compressing alone | a later token | process |", "|---|---|---|---|---|---|"]
        for row in data["results"]:
            out.append(f"| `{row['method']}` | {row['cache_bytes'] / exact['cache_bytes']:.3f} | "
                       f"{(row['prompt_seconds'] + row['compress_seconds']) / exact['prompt_seconds']:.2f} | "
                       f"{row['compress_seconds'] / exact['prompt_seconds']:.2f} | "
                       f"{row['decode_seconds_per_token'] / exact['decode_seconds_per_token']:.2f} | "
                       f"{row['peak_memory'] / 2**20:.0f} MiB |")
    return out[1:]


def throughput():
    """Sequences in one memory."""
    out = ["| vectors | prompt + answer | method | weights | sequences | tokens/s | beside exact |",
           "|---|---|---|---|---|---|---|"]
    for path in sorted((SPEED / "throughput").glob("*/*.json")):
        for row in json.loads(path.read_text())["results"]:
            out.append(f"| {VECTORS[path.parent.name]} | {row['prompt']:,} + {row['generated']:,} | `{row['name']}` | {row['weights']} | {row['batch']} | "
                       f"{row['tokens_per_second']:.1f} | {row['ratio']:.2f}× |")
    return out


def main():
    if sys.argv[1:] not in ([], ["--check"]):
        print("usage: speed_page.py [--check]", file=sys.stderr)
        return 2
    made = {"alone": alone, "streams": streams, "costs": costs, "pays": pays, "throughput": throughput}
    others = 0
    for page in (ROOT / "lab/docs/performance.md", ROOT / "lab/docs/evidence.md",
                 ROOT / "lab/docs/scaling.md"):
        text = page.read_text()
        new = MADE.sub(lambda m: "\n".join([f"<!-- {m[1]} -->", *made[m[1]](), "<!-- end -->", ""]), text)
        if new != text and sys.argv[1:]:
            print(f"{page.name}: its tables are not those of lab/results/speed: run lab/bench/speed_page.py")
            others = 1
        elif new != text:
            page.write_text(new)
    return others


if __name__ == "__main__":
    sys.exit(main())
