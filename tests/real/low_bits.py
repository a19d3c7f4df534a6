#!/usr/bin/env python3
"""What caches of few bits cost a real model: nats a token over the exact cache.

    low_bits.py PROGRAM TEXT

SmolLM2-135M is fetched once, into the folder of `ballast pull`. Exits with 77 where it cannot be had.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

MODEL = "smollm2-135m"
# Key type, value type, most nats a token over exact.
LIMITS = [("q4", "q4", 0.05), ("q4", "q2", 0.4), ("int4", "int4", 0.1)]


def nats(program, text, *flags):
    made = subprocess.run([program, "perplexity", "-m", MODEL, text, "-q", "--json", *flags],
                          check=True, stdout=subprocess.PIPE)
    return json.loads(made.stdout)["nats_per_token"]


def main():
    program, source = sys.argv[1:]
    pulled = subprocess.run([program, "pull", "-q", MODEL], capture_output=True, text=True)
    if pulled.returncode != 0:
        print(f"skipped: {MODEL} cannot be had here: {pulled.stderr.strip()}")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        text = pathlib.Path(folder, "text")
        text.write_text(pathlib.Path(source).read_text()[:6000])
        exact = nats(program, text)
        failed = False
        for keys, values, most in LIMITS:
            more = nats(program, text, "--key-type", keys, "--value-type", values) - exact
            print(f"{keys}/{values}: {more:+.4f} nats a token over {exact:.4f}, at most {most}")
            failed |= more > most
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
