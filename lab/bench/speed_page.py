#!/usr/bin/env python3
"""The tables of speed in lab/docs/performance.md, lab/docs/evidence.md and lab/docs/scaling.md, from
lab/results/speed/*.json.

    lab/bench/speed_page.py            writes the tables
    lab/bench/speed_page.py --check    exits with 1 if they are others

Each file is what `ballast bench --against lab/bench/peers/llama-bench --json=FILE` wrote, or, for streams,
`ballast bench --serve --json=FILE` with what `lab/bench/peers/llama-bench --streams` printed as `peer`. In costs/ and
pays/ are files of `ballast bench --json=FILE`: of many methods, and of exact and an eighth by instruction set. In
throughput/ are, likewise, those of `ballast eval throughput --json=FILE`; in beside/, by instruction set, what
lab/bench/beside.py wrote, of which lab/docs/beside.svg is drawn, too."""
import json
import pathlib
import re
import sys

import library_picture

ROOT = pathlib.Path(__file__).resolve().parents[2]
SPEED = ROOT / "lab/results/speed"
VECTORS = {"avx2": "AVX2", "avx512": "AVX-512", "amx": "AMX"}
MADE = re.compile(r"<!-- (beside|eighth|together|alone|streams|costs|pays|throughput) -->\n.*?<!-- end -->\n", re.S)


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


PEERS = ("llama.cpp", "OpenVINO", "ik_llama.cpp")


def measured():
    """Target, file and rows of each model that lab/bench/beside.py measured, the smallest first."""
    files = [(path.parent.name, json.loads(path.read_text())) for path in (SPEED / "beside").glob("*/*.json")]
    return sorted(files, key=lambda f: (f[0] != "avx512", f[1].get("weight_bytes", 0)))


def of(data, engine, prompt, batch, method="exact"):
    """The row, or None."""
    asked = (engine, prompt, batch, method)
    found = [r for r in data["rows"] if (r["engine"], r["prompt"], r["batch"], r["method"]) == asked]
    return found[0] if found else None


def times(peer, ours):
    """How many times as long the peer takes; bold where it takes less."""
    if not peer:
        return "–"
    said = f"{peer / ours:.2f}×" if peer < 0.995 * ours else f"{peer / ours:.1f}×"
    return f"**{said}**" if peer < 0.995 * ours else said


def first(row):
    return row["prompt_seconds"] + row.get("compress_seconds", 0)


def token(row):
    return row["decode_seconds"] / row["generated"]


def beside():
    """A table for each instruction set."""
    out = []
    for target in ("avx512", "avx2", "amx"):
        files = [data for name, data in measured() if name == target]
        if not files:
            continue
        days = sorted({data["day"] for data in files})
        peers = [p for p in PEERS if any(p in data["engines"] for data in files)]
        head = " | ".join(peers)
        out += ["", f"**{VECTORS[target]}** ({' to '.join([days[0], days[-1]][:len(days)])})", "",
                f"| model | prompt | cache | first token | floor | {head} | a token | floor | {head} | runs |",
                "|---|---|---|---|---|" + "---|" * len(peers) + "---|---|" + "---|" * len(peers) + "---|"]
        for data in files:
            for row in sorted(data["rows"], key=lambda r: r["prompt"]):
                if row["engine"] != "Ballast" or row["batch"] > 1:
                    continue
                others = [of(data, peer, row["prompt"], 1) for peer in peers]
                cache = "exact" if row["method"] == "exact" else row["method"].partition("bytes=")[2]
                reads = [times(o and o["prompt_seconds"], first(row)) for o in others]
                makes = [times(o and token(o), token(row)) for o in others]
                out.append(" | ".join([
                    f"| {data['model']}", f"{row['prompt']:,}", cache, seconds(first(row)),
                    seconds(row["prompt_floor_seconds"]), *reads, f"{1e3 * token(row):.1f} ms",
                    f"{1e3 * row['decode_floor_seconds'] / row['generated']:.1f} ms", *makes,
                    ", ".join(str(o["runs"]) if o else "–" for o in (row, *others))]) + " |")
    return out[1:]


def eighth():
    """A token from an eighth beside one from the exact cache."""
    out = ["| vectors | model | prompt | exact | an eighth | times as long |", "|---|---|---|---|---|---|"]
    for target, data in measured():
        for prompt in sorted({r["prompt"] for r in data["rows"] if r["prompt"] >= 4096}):
            rows = [of(data, "Ballast", prompt, 1, method) for method in ("exact", "calibrated:bytes=1/8")]
            if all(rows):
                exact, small = (1e3 * token(row) for row in rows)
                out.append(f"| {VECTORS[target]} | {data['model']} | {prompt:,} | {exact:.1f} ms | {small:.1f} ms | "
                           f"{small / exact:.2f} |")
    return out


def together():
    """Tokens a second of sequences that are continued together."""
    out = [f"| vectors | model | prompt | sequences | Ballast | of one's | {' | '.join(PEERS)} |",
           "|---|---|---|---|---|---|" + "---|" * len(PEERS)]
    for target, data in measured():
        rows = [r for r in data["rows"] if r["engine"] == "Ballast" and r["method"] == "exact"]
        wide = {r["prompt"] for r in rows if r["batch"] > 1}
        for row in sorted(rows, key=lambda r: (r["prompt"], r["batch"])):
            if row["prompt"] not in wide:
                continue
            one = of(data, "Ballast", row["prompt"], 1)
            speed = row["batch"] / token(row)
            others = [of(data, peer, row["prompt"], row["batch"]) for peer in PEERS]
            shown = [f"{row['batch'] / token(o):.1f}" if o else "–" for o in others]
            shown = [f"**{s}**" if o and token(o) < token(row) else s for s, o in zip(shown, others)]
            out.append(f"| {VECTORS[target]} | {data['model']} | {row['prompt']:,} | {row['batch']} | {speed:.1f} | "
                       f"{speed * token(one):.1f}× | {' | '.join(shown)} |")
    return out


def picture():
    """lab/docs/beside.svg: times of all engines at 4,096 tokens, with AVX-512."""
    groups = []
    for target, data in measured():
        rows = [(engine, of(data, engine, 4096, 1)) for engine in ("Ballast", *PEERS)]
        rows = [(engine, row) for engine, row in rows if row]
        if target != "avx512" or len(rows) < 2:
            continue
        for what, time, unit in (("to the first token", first, seconds),
                                 ("a token", token, lambda t: f"{1e3 * t:.1f} ms")):
            groups.append({"title": f"{data['model']}, {what}", "rows": [
                {"label": engine, "value": time(row), "shown": unit(time(row)), "ours": engine == "Ballast"}
                for engine, row in rows]})
    return library_picture.drawn({
        "title": "Time for a text of 4,096 tokens", "groups": groups,
        "foot": "Shorter is better. Two threads of a Zen 4 with AVX-512, exact cache, the same file for all; the least "
                "of one to four runs."}) + "\n"


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
    made = {"beside": beside, "eighth": eighth, "together": together, "alone": alone, "streams": streams,
            "costs": costs, "pays": pays, "throughput": throughput}
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
    drawing = ROOT / "lab/docs/beside.svg"
    if not drawing.exists() or drawing.read_text() != picture():
        if sys.argv[1:]:
            print("beside.svg: it is not that of lab/results/speed: run lab/bench/speed_page.py")
            others = 1
        else:
            drawing.write_text(picture())
    return others


if __name__ == "__main__":
    sys.exit(main())
