#!/usr/bin/env python3
"""Whether every folder of src/ includes only folders above it in the table of docs/design.md, nothing
there includes the lab, and the lab includes only what lab/README.md names of src/.

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
        own = [row for row, names in enumerate(table) if str(folder) in names]
        inside = [row for row, names in enumerate(table) if any(name.startswith(f"{folder}/") for name in names)]
        if own or inside:
            return (own or inside)[0]
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
                if (source / "lab" / include).exists() and not (file.parent / include).exists():
                    yield f"src/{name}: includes {include} of the lab"
                continue
            other = rank(table, pathlib.PurePath(include).parent)
            if other is not None and other > own:
                yield f"src/{name}: includes {include}, which is below it in docs/design.md"


LAB = ("pages", "experiments", "program")  # each includes those before it


def lab_faults(source):
    lab = source / "lab"
    section = (lab / "README.md").read_text().split("\n## Internal headers\n")[1].split("\n## ")[0]
    named = {name for line in section.splitlines() if line.startswith("| `")
             for name in re.findall(r"`([^`]+)`", line.split("|")[1])}
    used = set()
    for file in sorted(lab.rglob("*")):
        name = file.relative_to(lab)
        if file.suffix not in (".h", ".cc") or name.parts[0] == "tests":
            continue
        for include in re.findall(r'^#include "([^"]+)"', file.read_text(), re.MULTILINE):
            folder = include.split("/")[0]
            if (source / "src" / include).exists():
                known = {include, folder + "/"} & named
                used |= known
                if not known:
                    yield f"lab/{name}: includes {include}, which lab/README.md does not name"
            elif name.parts[0] in LAB and folder in LAB and (
                    LAB.index(folder) > LAB.index(name.parts[0])):
                yield f"lab/{name}: includes {include}"
    for header in sorted(named - used):
        yield f"lab/README.md: names {header}, which no file of the lab includes"


def target_faults(source):
    """The picture of targets: rooms as CMake has them, each target under one that it links."""
    cmake = "\n".join((source / f).read_text() for f in ("CMakeLists.txt", "lab/CMakeLists.txt"))
    rooms_of = {name: rooms.split() for name, rooms in
                re.findall(r"ballast_(?:app_|lab_)?library\((ballast_\w+) ([\w ]+)\)", cmake)}
    links = {}
    for name, words in re.findall(r"target_link_libraries\((ballast_\w+)([^)]*)\)", cmake):
        links.setdefault(name, set()).update(words.split())
    picture = re.findall(r"^    ( *)(ballast_\w+) +(.+)$", (source / "docs/design.md").read_text(), re.M)
    above = {}  # by indentation
    for indent, name, rooms in picture:
        above[len(indent)] = name
        if name in rooms_of and rooms.removeprefix("lab: ").split() != rooms_of[name]:
            yield f"docs/design.md: {name} has {' '.join(rooms_of[name])} in CMake, not {rooms}"
        if indent and above[len(indent) - 2] not in links.get(name, set()):
            yield f"docs/design.md: {name} does not link {above[len(indent) - 2]}"
    drawn = {name for _, name, _ in picture}
    for name in rooms_of.keys() - drawn:
        yield f"docs/design.md: the picture of targets has no {name}"


root = pathlib.Path(sys.argv[1])
found = [*faults(root), *lab_faults(root), *target_faults(root)]
print("\n".join(found))
sys.exit(1 if found else 0)
