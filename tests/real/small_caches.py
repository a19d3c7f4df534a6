#!/usr/bin/env python3
"""What small caches cost a real model: nats a token over the exact cache.

    small_caches.py PROGRAM TEXT

SmolLM2-135M is fetched once, into the folder of `ballast pull`. Exits with 77 where it cannot be had.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

MODEL = "smollm2-135m"
# Flags, most nats a token over exact.
LIMITS = [
    ("--key-type q4 --value-type q4", 0.05),
    ("--key-type q4 --value-type q2", 0.4),
    ("--key-type int4 --value-type int4", 0.1),
    ("--cache 1/8", 0.05),
    ("--cache 1/8 --protocol stream", 0.1),
    ("--method replay:bytes=1/8", 0.05),
]


def measure(program, text, flags):
    made = subprocess.run([program, "perplexity", "-m", MODEL, text, "-q", "--json", *flags.split()],
                          check=True, stdout=subprocess.PIPE)
    return json.loads(made.stdout)


def main():
    program, source = sys.argv[1:]
    pulled = subprocess.run([program, "pull", "-q", MODEL], capture_output=True, text=True)
    if pulled.returncode != 0:
        print(f"skipped: {MODEL} cannot be had here: {pulled.stderr.strip()}")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        text = pathlib.Path(folder, "text")
        text.write_text(pathlib.Path(source).read_text()[:6000])
        exact = measure(program, text, "")["nats_per_token"]
        failed = False
        for flags, most in LIMITS:
            found = measure(program, text, flags)
            more = found["nats_per_token"] - exact
            print(f"{flags}: {more:+.4f} nats a token over {exact:.4f}, at most {most}")
            failed |= more > most
            if flags == "--cache 1/8" and not found["method"].startswith("calibrated"):
                print(f"{flags}: method {found['method']}, expected calibrated")
                failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
