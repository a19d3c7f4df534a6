#!/usr/bin/env python3
"""Whether sources that share a precompiled header are compiled with the same options.

    check_options.py BUILD

GCC 12 takes -O and -ffp-contract of a precompiled header for functions with a target of their own:
a kernel that is to be compiled without contraction would have fused multiply-adds, and other bits.
"""
import collections
import json
import pathlib
import re
import shlex
import sys

options = collections.defaultdict(lambda: collections.defaultdict(list))
for entry in json.loads((pathlib.Path(sys.argv[1]) / "compile_commands.json").read_text()):
    header = re.search(r"-include (\S*cmake_pch\S*)", entry["command"])
    if header:
        words = shlex.split(entry["command"])
        own = tuple(w for w in words if re.match(r"-[OfmgD]|--param|-std", w) and "HWY" not in w)
        options[header[1]][own].append(entry["file"])
faults = []
for header, groups in options.items():
    usual = max(groups, key=lambda own: len(groups[own]))
    for own, files in groups.items():
        other = sorted(set(own) ^ set(usual)) or ["the order of options"]
        if own != usual and not all(w.startswith("-D") for w in other):
            faults += [f"{file}: {' '.join(other)} beside {header}" for file in files]
print("\n".join(faults))
sys.exit(1 if faults else 0)
