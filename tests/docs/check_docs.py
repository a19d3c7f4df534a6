#!/usr/bin/env python3
"""Checks the Markdown files that git does not ignore.

    check_docs.py ROOT          prints one line per fault; exits with 1 if there is any
    check_docs.py --self-test   checks that each kind of fault is found

Faults: a relative link to a missing file or heading; a file of the source named in backticks that
does not exist; a line of prose over 120 characters; a page over its length; a page of docs/ that no
other page links to. Code blocks, tables, and what is inside a URL are not prose.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

PROSE = 120
LENGTHS = {"docs/design.md": 200}
# Records of decisions name files as they were.
HISTORY = ("docs/decisions/", "CHANGELOG.md")
LINK = re.compile(r"\]\(([^)\s]+)\)")
SOURCE = re.compile(r"`((?:src|include|tests|docs|cmake|examples|fuzz|models|lab)/[\w./-]+)`")


def parts(text):
    """Yields (line number, line, is code)."""
    fenced, blank, indented = False, True, False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
            yield number, line, True
            continue
        indented = line.startswith("    ") and (blank or indented)
        yield number, line, fenced or indented
        blank = not line.strip()
        indented = indented or (blank and indented)


def anchors(text):
    found = set()
    for _, line, code in parts(text):
        if not code and line.startswith("#"):
            title = line.lstrip("#").strip().lower().replace("`", "")
            found.add(re.sub(r"[^\w\- ]", "", title).replace(" ", "-"))
    return found


def check(root, pages):
    faults, linked = [], set()
    texts = {page: (root / page).read_text() for page in pages}
    for page, text in texts.items():
        folder = (root / page).parent
        for number, line, code in parts(text):
            if code:
                continue
            where = f"{page}:{number}"
            if len(line) > PROSE and not line.lstrip().startswith("|") and " " in line.strip():
                faults.append(f"{where}: {len(line)} characters, at most {PROSE}")
            for target in LINK.findall(line):
                if re.match(r"[a-z]+:", target):
                    continue
                path, _, heading = target.partition("#")
                file = (folder / path).resolve() if path else (root / page).resolve()
                if not file.exists():
                    faults.append(f"{where}: link to {target}, which does not exist")
                    continue
                name = file.relative_to(root.resolve()).as_posix()
                if name != page:
                    linked.add(name)
                if heading and name in texts and heading not in anchors(texts[name]):
                    faults.append(f"{where}: link to {target}, which has no such heading")
            if not page.startswith(HISTORY):
                for name in SOURCE.findall(line):
                    if not (root / name).exists():
                        faults.append(f"{where}: names {name}, which does not exist")
        lines = len(text.splitlines())
        if lines > LENGTHS.get(page, lines):
            faults.append(f"{page}: {lines} lines, at most {LENGTHS[page]}")
    for page in pages:
        if page.startswith(("docs/", "lab/docs/")) and page not in linked:
            faults.append(f"{page}: no page links to it")
    return faults


def self_test():
    long_line = "word " * 30
    good = "# A page\n\n[other](docs/b.md#one-heading), `docs/b.md`\n\n    " + long_line + "\n"
    good += "\n| " + long_line + "|\n"
    other = "## One heading\n\n```\n" + long_line + "\n```\n[up](../README.md)\n"
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        (root / "docs").mkdir()

        def faults(readme, page=other, name="docs/b.md"):
            (root / "README.md").write_text(readme)
            (root / name).write_text(page)
            return check(root, ["README.md", name])

        assert faults(good) == [], faults(good)
        for wrong, fault in [
            ("[b](docs/c.md)\n", "does not exist"),
            ("[b](docs/b.md#two)\n", "no such heading"),
            ("`src/none.cc`\n", "does not exist"),
            (long_line + "\n", "at most 120"),
            ("- item\n    " + long_line + "\n", "at most 120"),
        ]:
            found = faults(good + wrong)
            assert len(found) == 1 and fault in found[0], (wrong, found)
        assert "no page links" in faults("# Alone\n")[0]
        link = "[d](docs/design.md)\n"
        assert faults(link, "a\n" * 200, "docs/design.md") == []
        assert "at most 200" in faults(link, "a\n" * 201, "docs/design.md")[0]


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    root = pathlib.Path(sys.argv[1])
    listed = subprocess.run(["git", "-C", root, "ls-files", "--cached", "--others",
                             "--exclude-standard", "*.md"], capture_output=True, text=True)
    pages = listed.stdout.split()
    if not pages:  # an archive without git
        pages = [p.relative_to(root).as_posix() for folder in (".", "docs", "docs/decisions", "lab", "lab/docs", "models")
                 for p in (root / folder).glob("*.md")]
    faults = check(root, sorted(page for page in pages if (root / page).exists()))
    print("\n".join(faults) or "no fault")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
