"""Checkpoints: written whole or as files of at most 16 MiB, in full or in bfloat16.

    python3 checkpoint.py run/latest.pt checkpoint/mini.pt      # bfloat16, in files mini.pt.00, mini.pt.01, ...
"""

import argparse
import glob
import io
import os

import torch

LARGEST = 16 << 20


def parts(path):
    return sorted(glob.glob(glob.escape(path) + ".[0-9][0-9]"))


def exists(path):
    return os.path.exists(path) or bool(parts(path))


def save(path, content, split=False):
    """Writes beside the old file first, so that a stop in between leaves one of the two."""
    if not split:
        torch.save(content, path + ".new")
        os.replace(path + ".new", path)
        return
    buffer = io.BytesIO()
    torch.save(content, buffer)
    raw = buffer.getvalue()
    count = -(-len(raw) // LARGEST)
    if count > 100:
        raise ValueError(f"{path}: {len(raw)} bytes are more than 100 files of 16 MiB")
    for i in range(count):
        with open(f"{path}.new{i:02}", "wb") as file:
            file.write(raw[i * LARGEST:(i + 1) * LARGEST])
    old = parts(path)
    for i in range(count):
        os.replace(f"{path}.new{i:02}", f"{path}.{i:02}")
    for name in old[count:]:
        os.remove(name)


def load(path):
    """What `save` wrote, on the CPU and in float32."""
    if os.path.exists(path):
        return full(torch.load(path, map_location="cpu"))
    names = parts(path)
    if not names:
        raise FileNotFoundError(f"{path}: no such checkpoint, nor {path}.00")
    raw = b""
    for name in names:
        with open(name, "rb") as file:
            raw += file.read()
    return full(torch.load(io.BytesIO(raw), map_location="cpu"))


def converted(content, change):
    if isinstance(content, torch.Tensor):
        return change(content)
    if isinstance(content, dict):
        return type(content)((key, converted(value, change)) for key, value in content.items())
    if isinstance(content, (list, tuple)):
        return type(content)(converted(value, change) for value in content)
    return content


def full(content):
    return converted(content, lambda t: t.float() if t.dtype == torch.bfloat16 else t)


def small(content):
    """Matrices in bfloat16; what Adam squares and counts has few numbers or needs its range, which bfloat16 keeps."""
    return converted(content, lambda t: t.bfloat16() if t.dtype == torch.float32 and t.numel() > 1 else t)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint")
    parser.add_argument("out")
    arguments = parser.parse_args()
    os.makedirs(os.path.dirname(os.path.abspath(arguments.out)), exist_ok=True)
    save(arguments.out, small(load(arguments.checkpoint)), split=True)
    for name in parts(arguments.out):
        print(f"{name}: {os.path.getsize(name)} bytes")


if __name__ == "__main__":
    main()
