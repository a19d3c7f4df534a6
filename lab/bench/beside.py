#!/usr/bin/env python3
"""Measures Ballast and its peers on one GGUF file, length by length and in turns, into
lab/results/speed/beside/TARGET/NAME.json, of which lab/bench/speed_page.py makes tables and a picture.

    lab/bench/beside.py FILE NAME --prompt 512,4096 [--batch 1] [--target avx2] [--threads 2] [--repeat 2]
                        [--engine Ballast="ballast bench" --engine "llama.cpp=lab/bench/peers/llama-bench" …]

Each length is measured by each engine, then the next. A second call adds to the file: of every time the least counts
("runs": of how many), and lengths, batches and engines that are new come in. A batch is so many sequences that are
continued together: of Ballast from one prompt that is read once, of peers from as many prompts; only their tokens'
times are compared.
Ballast's rows hold the floors that `ballast bench` measured in the same call."""
import argparse
import datetime
import json
import pathlib
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
ENGINES = {"Ballast": "ballast bench", "llama.cpp": str(ROOT / "lab/bench/peers/llama-bench"),
           "OpenVINO": f"python3 {ROOT / 'lab/bench/peers/openvino'}",
           "ik_llama.cpp": f"{ROOT / 'lab/bench/peers/llama-bench'} --engine ik_llama.cpp"}
WARM = 128
TIMES = ("prompt_seconds", "decode_seconds", "compress_seconds")


def numbers(text):
    return [int(n) for n in text.split(",")]


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        print(f"beside.py: {shlex.join(command)}: {done.stderr.strip()[-600:]}", file=sys.stderr)
        return None
    return json.loads(done.stdout[done.stdout.index("{"):])


def of_ballast(o, command, prompt, batch, data):
    # The first prompt warms up, as peers do: weights are mapped as they are first read.
    said = run([*command, "-m", o.file, "--methods", o.methods, "--prompt", f"{WARM},{prompt}", "--generate",
                str(o.generate), "--batch", str(batch), "--threads", str(o.threads), "--target", o.target, "--json"])
    if said is None:
        return []
    data["weight_bytes"], data["machine"] = said["weight_bytes"], said["machine"]
    kept = ("method", "prompt_floor_seconds", "decode_floor_seconds", "cache_bytes", *TIMES)
    return [{"engine": "Ballast", **{key: row[key] for key in kept}} for row in said["results"]
            if row["prompt"] == prompt]


def of_peer(o, name, command, prompt, batch, data):
    said = run([*command, "--model", o.file, "--prompt", str(prompt), "--generate", str(o.generate), "--threads",
                str(o.threads), "--streams", str(batch)])
    if said is None:
        return []
    data["engines"][name] = said["name"]
    [row] = said["results"]
    return [{"engine": name, "method": "exact", **{key: row[key] for key in TIMES if key in row}}]


def keep(rows, row):
    same = [r for r in rows if all(r[key] == row[key] for key in ("engine", "method", "prompt", "batch"))]
    if not same:
        rows.append({**row, "runs": 1})
        return
    same[0]["runs"] += 1
    for key, value in row.items():
        if key.endswith("_seconds"):
            same[0][key] = min(same[0][key], value)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("name")
    parser.add_argument("--prompt", type=numbers, default=[512, 4096], metavar="N,N")
    parser.add_argument("--batch", type=numbers, default=[1], metavar="N,N")
    parser.add_argument("--generate", type=int, default=32, metavar="N")
    parser.add_argument("--methods", default="exact;calibrated:bytes=1/8")
    parser.add_argument("--threads", type=int, default=2, metavar="N")
    parser.add_argument("--repeat", type=int, default=1, metavar="N")
    parser.add_argument("--target", default="avx512", choices=("avx2", "avx512", "amx"))
    parser.add_argument("--engine", action="append", metavar="NAME=COMMAND")
    o = parser.parse_args()
    engines = dict(engine.split("=", 1) for engine in o.engine) if o.engine else ENGINES
    path = ROOT / "lab/results/speed/beside" / o.target / f"{o.name}.json"
    data = {"model": o.name, "target": o.target, "threads": o.threads, "engines": {}, "rows": []}
    if path.exists():
        data = json.loads(path.read_text())
    data["day"] = datetime.date.today().isoformat()
    for prompt, batch, _ in ((p, b, r) for p in o.prompt for b in o.batch for r in range(o.repeat)):
        for name, command in engines.items():
            words = shlex.split(command)
            rows = (of_ballast(o, words, prompt, batch, data) if name == "Ballast" else
                    of_peer(o, name, words, prompt, batch, data))
            for row in rows:
                keep(data["rows"], {"prompt": prompt, "batch": batch, "generated": o.generate, **row})
                print(name, row["method"], prompt, batch, f"{row['prompt_seconds']:.2f} s",
                      f"{1e3 * row['decode_seconds'] / o.generate:.1f} ms", flush=True)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(data, indent=1) + "\n")


if __name__ == "__main__":
    main()
