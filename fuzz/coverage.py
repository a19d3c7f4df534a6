#!/usr/bin/env python3
"""Covered lines by folder of src, from `llvm-cov export -summary-only` on standard input."""
import collections
import json
import pathlib
import sys

source = pathlib.Path(sys.argv[1])
folders = collections.defaultdict(lambda: [0, 0])
for file in json.load(sys.stdin)["data"][0]["files"]:
    path = pathlib.Path(file["filename"]).resolve()  # ccache leaves ".." in it
    if source in path.parents:
        lines = file["summary"]["lines"]
        counts = folders[str(path.parent.relative_to(source))]
        counts[0] += lines["covered"]
        counts[1] += lines["count"]
for name, (covered, count) in sorted(folders.items()):
    print(f"{name}: {covered} of {count} lines ({100 * covered / max(1, count):.0f}%)")
