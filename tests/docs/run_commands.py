#!/usr/bin/env python3
"""Runs the commands printed in README.md, docs/ and the pages of the lab.

    run_commands.py PROGRAM ROOT          checks that every printed `ballast` command is one
    run_commands.py PROGRAM ROOT --run    also runs those of README.md and docs/running-models.md

Commands are indented lines that begin with `ballast`, alone or after a pipe. With --run they run in a
folder with stand-ins for the files that they name: the shipped model, the texts of examples/. A
command runs for at most ten minutes; one with a model of its own data is checked only.
"""
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

PAGES_TO_RUN = ("README.md", "docs/running-models.md")
# Conversations without end, models to be fetched or that see, other programs, and figures that take hours.
NOT_RUN = ("ballast bench ", "ballast serve ", "ballast pull ", "ballast models", "-m qwen",
           "some-program", "--image", "ballast library")


def commands(text):
    """Yields (line number, command), with continued lines joined."""
    lines = text.splitlines()
    i = 0
    while i < len(lines):
        number, line = i + 1, lines[i]
        i += 1
        if not line.startswith("    "):
            continue
        command = line.strip()
        while command.endswith("\\") and i < len(lines):
            command = command[:-1].rstrip() + " " + lines[i].strip()
            i += 1
        # Long commands of lab/docs/experiments.md go on in lines without a mark.
        while i < len(lines) and lines[i].startswith("        ") and "ballast" in command:
            command += " " + lines[i].strip()
            i += 1
        if re.match(r"(build/)?ballast |.*\| ballast ", command):
            yield number, re.sub(r"\s+#.*$", "", command)


def arguments(command):
    """The words after `ballast`, to the end of its part of a pipe."""
    words = shlex.split(command.split("| ")[-1])
    words = words[1:]
    for sign in (">", "<", "2>"):
        if sign in words:
            words = words[: words.index(sign)]
    return words


def main():
    program, root = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    faults, checked, ran = [], 0, 0
    pages = [root / "README.md", *sorted((root / "docs").rglob("*.md")), root / "models/README.md",
             root / "lab/README.md", *sorted((root / "lab/docs").glob("*.md"))]
    found = [(page, number, command) for page in pages
             for number, command in commands(page.read_text())]
    for page, number, command in found:
        where = f"{page.relative_to(root)}:{number}"
        result = subprocess.run([program, "--check", *arguments(command)], capture_output=True,
                                text=True, check=False)
        checked += 1
        if result.returncode != 0:
            faults.append(f"{where}: {command}\n    {result.stderr.strip()}")
    if len(found) < 50:
        faults.append(f"only {len(found)} commands found")
    if "--run" in sys.argv:
        with tempfile.TemporaryDirectory() as folder:
            home = pathlib.Path(folder)
            for name in ("models", "examples"):
                (home / name).symlink_to(root / name)
            (home / "model.gguf").symlink_to(root / "models/ballast-mini.gguf")
            (home / "questions.txt").write_text("Who are you?\n")
            story = (root / "examples/story.txt").read_text()
            for name in ("book.txt", "lease.txt", "letter.txt", "prompt.txt", "text.txt"):
                (home / name).write_text(story)
            (home / "bin").mkdir()
            (home / "bin/ballast").symlink_to(program)
            for page, number, command in found:
                if str(page.relative_to(root)) not in PAGES_TO_RUN:
                    continue
                if any(name in command for name in NOT_RUN):
                    continue
                where = f"{page.relative_to(root)}:{number}"
                try:
                    result = subprocess.run(["bash", "-c", f'PATH="$PWD/bin:$PATH"; {command}'],
                                            cwd=home, capture_output=True, text=True, timeout=600,
                                            input="Hello\n", check=False)
                except subprocess.TimeoutExpired:
                    faults.append(f"{where}: over ten minutes: {command}")
                    continue
                ran += 1
                if result.returncode != 0:
                    faults.append(f"{where}: {command}\n    {result.stderr.strip()}")
    for fault in faults:
        print(fault)
    print(f"{checked} commands checked, {ran} run, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
