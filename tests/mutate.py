#!/usr/bin/env python3
"""Mutation testing: does any test fail when one operator, constant or comparison is changed?

Copies the tracked files to build-mutants/source, builds the test programs there once, and then, for
each change of a sample, rebuilds and runs the programs of its room. A change is killed when a
program fails or takes too long. Changes that do not compile do not count.
"""
import argparse
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
WORK = ROOT / "build-mutants"
SOURCE = WORK / "source"
BUILD = SOURCE / "build"  # where it is in the tree itself, so that ccache has most of it

# The programs that have to notice, the cheapest first.
PROGRAMS = {
    "base": ["test_base"],
    "methods": ["test_methods", "test_cache"],
    "cache": ["test_cache"],
    "attention": ["test_attention", "test_cache"],
    "text": ["test_text"],
}

# Binary operators have spaces around them, which pointers and templates have not: clang-format.
CHANGES = [
    (r"(?<= )<(?= )", ["<="]), (r"(?<= )<=(?= )", ["<"]),
    (r"(?<= )>(?= )", [">="]), (r"(?<= )>=(?= )", [">"]),
    (r"(?<= )==(?= )", ["!="]), (r"(?<= )!=(?= )", ["=="]),
    (r"(?<= )&&(?= )", ["||"]), (r"(?<= )\|\|(?= )", ["&&"]),
    (r"(?<= )\+(?= )", ["-"]), (r"(?<= )-(?= )", ["+"]),
    (r"(?<= )\*(?= )", ["/"]), (r"(?<= )/(?= )", ["*"]),
    (r"(?<= )%(?= )", ["/"]),
    (r"(?<= )\+=(?= )", ["-="]), (r"(?<= )-=(?= )", ["+="]), (r"(?<= )\*=(?= )", ["/="]),
    (r"(?<![\w:])true(?!\w)", ["false"]), (r"(?<![\w:])false(?!\w)", ["true"]),
    (r"std::min(?=[(<])", ["std::max"]), (r"std::max(?=[(<])", ["std::min"]),
    (r"(?<=[ (\[{<])[0-9]+(?=[ ;,)\]}])", ["+1"]),
    (r"(?<=[(\s])!(?=[\w(])", [""]),
]
# What a change there cannot show: declarations, messages, and paths of other processors.
SKIPPED = re.compile(r"^\s*(#|//|///|namespace|using|static_assert|case |template|HWY_)|fail\(|require\(")


def code_of(line):
    """The line with strings, characters and comments blanked, so that places stay."""
    blank = lambda match: " " * len(match.group())
    line = re.sub(r'"(\\.|[^"\\])*"|\'(\\.|[^\'\\])\'', blank, line)
    return re.sub(r"//.*", blank, line)


def mutants_of(path):
    """(line number, column, old, new) of every change of a file."""
    out = []
    in_raw_text = False
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if 'R"(' in line:
            in_raw_text = True
        if in_raw_text or SKIPPED.search(line):
            in_raw_text = in_raw_text and ')"' not in line
            continue
        code = code_of(line)
        for pattern, news in CHANGES:
            for match in re.finditer(pattern, code):
                for new in news:
                    old = match.group()
                    made = str(int(old) + 1) if new == "+1" else new
                    out.append((number, match.start(), old, made))
    return out


def sample_of(rooms, seed):
    """All changes of the rooms in random order, a room at a time in turn."""
    by_room = {}
    for room in rooms:
        found = []
        for path in sorted((SOURCE / "src" / room).rglob("*.cc")):
            if re.search(r"_avx(2|512)", path.name):
                continue  # which kernel runs depends on the processor
            found += [(str(path.relative_to(SOURCE)),) + m for m in mutants_of(path)]
        random.Random(f"{seed} {room}").shuffle(found)
        by_room[room] = found
    out = []
    while any(by_room.values()):
        for room in rooms:
            if by_room[room]:
                out.append((room,) + by_room[room].pop())
    return out


def run(command, limit=None):
    """(exit code, output); the code is None when the limit, in seconds, was over."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              errors="replace", timeout=limit)
        return done.returncode, done.stdout
    except subprocess.TimeoutExpired as error:
        return None, str(error)


def copy_tree():
    names = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                           cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
    for name in filter(None, names):
        source, target = ROOT / name, SOURCE / name
        if not source.is_file():
            continue
        # Equal files keep their times, so that nothing is built again.
        if target.exists() and target.read_bytes() == source.read_bytes():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        shutil.copymode(source, target)


def build(programs, jobs):
    return run(["ninja", "-C", str(BUILD), f"-j{jobs}"] + [f"tests/{p}" for p in programs])


def test(program, limit):
    # Tests of the heap come apart: what tests before them leave in the allocator counts, too.
    for tests in ("-Long*:*BytesOf*", "*BytesOf*"):
        code, output = run([str(BUILD / "tests" / program), "--gtest_fail_fast",
                            "--gtest_brief=1", f"--gtest_filter={tests}"], limit)
        if code != 0:
            break
    return code, output


def failing_test(output):
    found = re.search(r"\[  FAILED  \] ([\w./]+)", output)
    return found.group(1) if found else "crash"


def main():
    parser = argparse.ArgumentParser(prog="mutate.sh", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60, help="ends after so many (60)")
    parser.add_argument("--seed", type=int, default=1, help="of the sample (1)")
    parser.add_argument("--rooms", default=",".join(PROGRAMS), help="folders of src, comma-separated")
    parser.add_argument("--jobs", type=int, default=2, help="compilations at once (2)")
    parser.add_argument("--list", action="store_true", help="only count the changes there are")
    options = parser.parse_args()
    rooms = options.rooms.split(",")
    for room in rooms:
        if room not in PROGRAMS:
            sys.exit(f"mutate.sh: unknown room '{room}'; known: {', '.join(PROGRAMS)}")
    end = time.monotonic() + 60 * options.minutes
    os.environ.update(CCACHE_BASEDIR=str(SOURCE), CCACHE_NOHASHDIR="1")
    copy_tree()
    changes = sample_of(rooms, options.seed)
    if options.list:
        for room in rooms:
            print(f"{room}: {sum(c[0] == room for c in changes)} changes")
        return
    programs = sorted({p for room in rooms for p in PROGRAMS[room]})
    code, output = run(["cmake", "-S", str(SOURCE), "-B", str(BUILD), "-G", "Ninja",
                        "-DCMAKE_BUILD_TYPE=Release"])
    if code == 0:
        code, output = build(programs, options.jobs)
    if code != 0:
        sys.exit(f"mutate.sh: the unchanged tree does not build:\n{output[-3000:]}")
    limits = {}
    for program in programs:
        begin = time.monotonic()
        code, output = test(program, None)
        if code != 0:
            sys.exit(f"mutate.sh: {program} fails unchanged: {failing_test(output)}\n{output[-2000:]}")
        limits[program] = 20 + 4 * (time.monotonic() - begin)
    counts = {room: [0, 0] for room in rooms}  # killed, all
    log = (WORK / "log.jsonl").open("a")
    for room, name, number, column, old, new in changes:
        if time.monotonic() > end:
            break
        path = SOURCE / name
        good = path.read_text()
        lines = good.splitlines(keepends=True)
        line = lines[number - 1]
        lines[number - 1] = line[:column] + new + line[column + len(old):]
        try:
            path.write_text("".join(lines))
            killer = None
            for program in PROGRAMS[room]:
                code, output = build([program], options.jobs)
                if code != 0:
                    killer = "compiler"
                    break
                code, output = test(program, limits[program])
                if code != 0:
                    killer = "time" if code is None else failing_test(output)
                    break
        finally:
            path.write_text(good)
        verdict = f"killed by {killer}" if killer else "SURVIVED"
        print(f"{name}:{number}: {old} -> {new or '(nothing)'}: {verdict}", flush=True)
        if not killer:
            print(f"    {lines[number - 1].strip()}", flush=True)
        log.write(json.dumps({"file": name, "line": number, "column": column, "old": old,
                              "new": new, "seed": options.seed, "killer": killer}) + "\n")
        log.flush()
        if killer != "compiler":
            counts[room][1] += 1
            counts[room][0] += killer is not None
    for room, (killed, all_) in counts.items():
        print(f"{room}: {killed} of {all_} killed")
    killed, all_ = (sum(c[i] for c in counts.values()) for i in (0, 1))
    print(f"all: {killed} of {all_} killed" + (f" ({100 * killed / all_:.0f}%)" if all_ else ""))


if __name__ == "__main__":
    main()
