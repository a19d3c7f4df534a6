#!/usr/bin/env python3
"""Whether the source keeps to the counts that its structure is to reach (docs/design.md).

    check_house.py SOURCE        a line for each count above its ceiling; exit code 1 if any
    check_house.py SOURCE --all  the table of all counts

A ceiling is a count of today (lines: the next thousand). Whoever makes a count smaller lowers its
ceiling, at least to the goal.
"""
import pathlib
import re
import sys

CORE = ("base", "simd", "storage", "attention", "methods", "cache", "pack")

# name: (goal, ceiling)
TABLE = {
    "public functions of Cache": (18, 18),
    "parts() outside of src/cache": (0, 0),
    "uses of whole_cache": (0, 0),
    "methods that the conformance test skips": (0, 0),
    "layer loops of the forward pass": (1, 1),
    "sources of test_cache": (130, 136),
    "lines of src and include": (71000, 93750),
    "lines of lab": (19000, 21000),
    "files of more than 500 lines": (10, 8),
    "files of more than 500 lines in lab": (0, 3),
    "functions of more than 60 lines": (30, 23),
    "functions of more than 60 lines in lab": (0, 13),
    "mentions of a second reading": (0, 14),
    "sources without a header of their name": (0, 50),
}


def text(file):
    return file.read_text(encoding="utf-8", errors="replace")


def code(file):
    """A file without its comments."""
    return re.sub(r"//[^\n]*", "", text(file))


def public_functions(header, name):
    """Names with a parameter list in the first public part of a class; overloads count each."""
    body = re.search(rf"^class {name} {{\n public:\n(.*?)^ (?:private|protected):", header, re.S | re.M)
    functions = 0
    depth = 0  # of braces: members of nested types count for nothing
    for line in body.group(1).splitlines():
        if depth == 0 and re.match(r"  [\w:<>~*&, \[\]]*[\w=~]\(", line):
            constructor = re.match(rf"  (?:explicit )?~?{name}\(|.*operator=\(", line)
            functions += constructor is None
        depth += line.count("{") - line.count("}")
    return functions


def long_functions(source, most):
    """Functions of more than `most` lines: from the line of the opening brace to that of the
    closing one, which clang-format gives the same indentation."""
    found = 0
    lines = source.splitlines()
    for i, line in enumerate(lines):
        opens = line.endswith("{") and not re.match(
            r"\s*(namespace|class|struct|union|enum|extern|if|for|while|switch|else|do|try|\}|case)\b|\s*\}", line)
        if not opens or "= {" in line or "(" not in line and ")" not in line:
            continue
        first = i
        while first > 0 and lines[first].count(")") > lines[first].count("("):
            first -= 1
        indent = re.match(r" *", lines[first]).group()
        if len(indent) > 2:  # a lambda, or what stands in a function
            continue
        for end in range(i + 1, len(lines)):
            if lines[end].startswith(indent + "}"):
                found += end - first + 1 > most
                break
    return found


def count(root):
    src = {f: code(f) for f in sorted((root / "src").rglob("*")) if f.suffix in (".h", ".cc")}
    own = src | {f: code(f) for f in (root / "include").rglob("*.h")}
    # Experiments, pages and the program; not what measures kernels, nor tests.
    lab = {f: code(f) for folder in ("experiments", "pages", "program", "python")
           for f in sorted((root / "lab" / folder).rglob("*")) if f.suffix in (".h", ".cc")}

    def uses(pattern, files=own):
        return sum(len(re.findall(pattern, c)) for c in files.values())

    def named(file, *folders):
        return file.relative_to(root / "src").parts[0] in folders

    conformance = code(root / "tests/cache/conformance_test.cc")
    forward = [c for f, c in src.items() if f.stem in ("forward", "ranks", "layer_share")]
    headless = [f for f in src if f.suffix == ".cc" and not named(f, "cli", "bindings", "gemm", "simd")
                and "kernels" not in f.parts and not f.with_suffix(".h").exists()
                and not (root / "include/ballast" / f"{f.stem}.h").exists()
                and not (root / "include/ballast/engine" / f"{f.stem}.h").exists()]
    return {
        "public functions of Cache": public_functions(code(root / "include/ballast/cache.h"), "Cache"),
        "parts() outside of src/cache": uses(
            r"\bparts\(\)", {f: c for f, c in src.items() if not named(f, "cache")}),
        "uses of whole_cache": uses(r"\bwhole_cache\b"),
        "methods that the conformance test skips": len(re.findall(r"\bcontinue;|GTEST_SKIP", conformance)),
        "layer loops of the forward pass": sum(
            len(re.findall(r"for \([^)]*\b(?:layer|l) (?:<|!=)", c)) for c in forward),
        "sources of test_cache": sum(f.suffix == ".cc" and named(f, *CORE) for f in src)
        + len(list((root / "tests/cache").rglob("*_test.cc"))),
        "lines of src and include": sum(text(f).count("\n") for f in own),
        "lines of lab": sum(text(f).count("\n") for f in lab),
        "files of more than 500 lines": sum(text(f).count("\n") > 500 for f in own),
        "files of more than 500 lines in lab": sum(text(f).count("\n") > 500 for f in lab),
        "functions of more than 60 lines": sum(long_functions(c, 60) for c in own.values()),
        "functions of more than 60 lines in lab": sum(long_functions(c, 60) for c in lab.values()),
        "mentions of a second reading": sum(
            len(re.findall(r"second reading|read_again|ReadAgain", text(f))) for f in own),
        "sources without a header of their name": len(headless),
    }


def main():
    counts = count(pathlib.Path(sys.argv[1]))
    if "--all" in sys.argv:
        for name, (goal, ceiling) in TABLE.items():
            print(f"{name:42} {counts[name]:6}  ceiling {ceiling:6}  goal {goal:6}")
    above = [f"{name}: {counts[name]}, at most {ceiling}; the goal is {goal}"
             for name, (goal, ceiling) in TABLE.items() if counts[name] > max(goal, ceiling)]
    print("\n".join(above))
    sys.exit(1 if above else 0)


main()
