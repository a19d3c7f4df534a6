#!/usr/bin/env python3
"""Checks that no table of names from a file takes a hash without a key.

    check_tables.py ROOT     prints one line per fault in ROOT/src and ROOT/include; exits with 1 if
                             there is any

Texts that meet in the library's hash are quickly made, and the time to fill a table with them grows
with the square of their number. A fault is an unordered table of texts that does not name KeyedHash
(src/base/keyed_hash.h), or a use of std::hash.
"""
import pathlib
import re
import sys

TABLE = re.compile(r"unordered_(?:multi)?(?:map|set)\s*<\s*(?:const\s+)?std::(?:basic_)?"
                   r"(?:string|u8string|filesystem::path)[^;{(]*")


def faults(text):
    """Yields (line number, what is wrong)."""
    for found in TABLE.finditer(text):
        if "KeyedHash" not in found[0]:
            yield text.count("\n", 0, found.start()) + 1, "a table of texts without KeyedHash"
    for found in re.finditer(r"\bstd::hash\b", text):
        yield text.count("\n", 0, found.start()) + 1, "std::hash, which has no key"


def check_itself():
    for good in ("std::unordered_map<std::string, int, KeyedHash> a;",
                 "std::unordered_map<int, std::string> a;", "std::map<std::string, int> a;"):
        assert not list(faults(good)), good
    for bad in ("std::unordered_map<std::string, int> a;",
                "std::unordered_map<std::string, int> a;\nstd::set<int, KeyedHash> b;",
                "std::unordered_set<std::string_view> a;", "std::unordered_multimap<\n  std::string,"
                " std::vector<int>> a;", "std::hash<std::string>()(a)"):
        assert len(list(faults(bad))) == 1, bad


def main(root):
    check_itself()
    files = [file for folder in ("src", "include") for file in sorted((root / folder).rglob("*"))
             if file.suffix in (".h", ".cc")]
    if not files:
        sys.exit(f"{root}: no source in src/ and include/")
    wrong = [f"{file.relative_to(root)}:{line}: {what}" for file in files
             for line, what in faults(file.read_text())]
    print("\n".join(wrong) or f"{len(files)} files, no table of texts without a key")
    sys.exit(bool(wrong))


main(pathlib.Path(sys.argv[1]))
