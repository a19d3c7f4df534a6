#!/usr/bin/env python3
"""Whether every folder of src/ includes only folders above it in the table of docs/design.md.

    check_layers.py SOURCE

Folders in one row of the table may include one another.
"""
import pathlib
import re
import sys


def rooms(design):
    """The names of folders in the rows of the table under "Rooms", from the top."""
    section = design.split("\n## Rooms\n")[1].split("\n## ")[0]
    out = []
    for line in section.splitlines():
        if line.startswith("| `"):
            names = []
            for name in re.findall(r"`([^`]+)`", line.split("|")[1]):
                folder, _, parts = name.partition("{")
                names += [folder + part for part in parts.rstrip("}").split(",")]
            out.append(names)
    return out


def rank(table, folder):
    """The row of a folder: that of its own name, of the folder that it is in, or of one in it."""
    while folder != pathlib.PurePath("."):
        for row, names in enumerate(table):
            if any(name == str(folder) or name.startswith(f"{folder}/") for name in names):
                return row
        folder = folder.parent
    return None


def faults(source):
    table = rooms((source / "docs/design.md").read_text())
    src = source / "src"
    for file in sorted(src.rglob("*")):
        if file.suffix not in (".h", ".cc", ".inc"):
            continue
        name = file.relative_to(src)
        own = rank(table, name.parent)
        if own is None:
            yield f"src/{name}: its folder has no row in the table of docs/design.md"
            continue
        for include in re.findall(r'^#include "([^"]+)"', file.read_text(), re.MULTILINE):
            if not (src / include).exists():
                continue
            other = rank(table, pathlib.PurePath(include).parent)
            if other is not None and other > own:
                yield f"src/{name}: includes {include}, which is below it in docs/design.md"


found = list(faults(pathlib.Path(sys.argv[1])))
print("\n".join(found))
sys.exit(1 if found else 0)
