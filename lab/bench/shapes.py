#!/usr/bin/env python3
"""A small set of pictures with captions, in the form of COCO's annotations.

    python3 lab/bench/shapes.py FOLDER [COUNT]     writes FOLDER/captions.json and COUNT (200) pictures

Each picture has one to three shapes on a plain ground, and five captions that say what they are and
where. Needs NumPy. The same COUNT gives the same bytes.
"""

import json
import pathlib
import struct
import sys
import zlib

import numpy as np

SIDE = 448
COLOURS = {"red": (208, 32, 40), "green": (40, 160, 60), "blue": (40, 70, 200),
           "yellow": (240, 210, 40), "purple": (130, 50, 160), "orange": (240, 130, 30)}  # fmt: skip
GROUNDS = {"white": (250, 250, 250), "black": (16, 16, 16), "grey": (150, 150, 150)}
SHAPES = ["circle", "square", "triangle", "ring", "cross"]
SIZES = {"small": 34, "large": 68}
COLUMNS, ROWS = ["left", "middle", "right"], ["top", "centre", "bottom"]


def inside(shape, x, y, r):
    """Where pixels at (x, y) from the middle of a shape of radius r belong to it."""
    distance = np.hypot(x, y)
    return {
        "circle": distance <= r,
        "square": np.maximum(abs(x), abs(y)) <= 0.85 * r,
        "triangle": (y <= 0.8 * r) & (y >= 2 * abs(x) - 0.9 * r),
        "ring": (distance <= r) & (distance >= 0.6 * r),
        "cross": (np.maximum(abs(x), abs(y)) <= r) & (np.minimum(abs(x), abs(y)) <= 0.3 * r),
    }[shape]


def write_png(path, pixels):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0))
        + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b""))  # fmt: skip


def place(at):
    column, row = COLUMNS[at % 3], ROWS[at // 3]
    return {4: "in the middle", 3: "on the left", 5: "on the right", 1: "at the top",
            7: "at the bottom"}.get(at, f"at the {row} {column}")  # fmt: skip


def captions(things, ground):
    full = [f"a {size} {colour} {shape} {place(at)}" for size, colour, shape, at in things]
    short = [f"{'an' if colour[0] == 'o' else 'a'} {colour} {shape}" for _, colour, shape, _ in things]
    kinds = " and ".join(shape for _, _, shape, _ in things)
    number = ["one shape", "two shapes", "three shapes"][len(things) - 1]
    out = [
        f"{' and '.join(full)} on a {ground} background.",
        f"{' and '.join(short)} on a {ground} background.",
        f"there is {' and '.join(full)}.",
        f"{number} on a {ground} background: {' and '.join(short)}.",
        f"a picture of a {kinds} on {ground}.",
    ]
    return [text[0].upper() + text[1:] for text in out]


def main():
    folder = pathlib.Path(sys.argv[1])
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 200
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.RandomState(63)
    x, y = np.meshgrid(np.arange(SIDE), np.arange(SIDE))
    images, annotations = [], []
    for i in range(1, count + 1):
        ground = list(GROUNDS)[random.randint(len(GROUNDS))]
        pixels = np.full((SIDE, SIDE, 3), GROUNDS[ground], np.uint8)
        things = []
        for at in random.permutation(9)[: 1 + random.randint(3)]:
            size, colour = list(SIZES)[random.randint(2)], list(COLOURS)[random.randint(6)]
            shape = SHAPES[random.randint(len(SHAPES))]
            things.append((size, colour, shape, int(at)))
            centre_x, centre_y = SIDE * (1 + 2 * (at % 3)) / 6, SIDE * (1 + 2 * (at // 3)) / 6
            pixels[inside(shape, x - centre_x, y - centre_y, SIZES[size])] = COLOURS[colour]
        name = f"{i:04}.png"
        write_png(folder / name, pixels)
        images.append({"id": i, "file_name": name})
        for text in captions(things, ground):
            annotations.append({"id": len(annotations), "image_id": i, "caption": text})
    (folder / "captions.json").write_text(
        json.dumps({"images": images, "annotations": annotations}, indent=0))


if __name__ == "__main__":
    main()
