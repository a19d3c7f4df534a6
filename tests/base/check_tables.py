#!/usr/bin/env python3
"""Checks that no table of what a file holds takes a hash without a key.

    check_tables.py ROOT     prints one line per fault in ROOT/src and ROOT/include; exits with 1 if
                             there is any

Texts that meet in the library's hash are quickly made, numbers (which it leaves as they are) more so,
and the time to fill a table with them grows with the square of their number. A fault is an unordered
table of texts that does not name KeyedHash (src/base/keyed_hash.h), in the folders that read files
and requests (KEYED) one of anything, or a use of std::hash.
"""
import pathlib
import re
import sys

TABLE = re.compile(r"unordered_(?:multi)?(?:map|set)\s*<[^;{(]*")
TEXTS = re.compile(r"\w+\s*<\s*(?:const\s+)?std::(?:basic_)?(?:string|u8string|filesystem::path)")
KEYED = ("src/text", "src/formats", "src/serve")


def faults(text, keyed=False):
    """Yields (line number, what is wrong). `keyed`: of a file of KEYED."""
    for found in TABLE.finditer(text):
        if "KeyedHash" not in found[0] and (keyed or TEXTS.match(found[0])):
            yield text.count("\n", 0, found.start()) + 1, "a table without KeyedHash"
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
        assert len(list(faults(bad, keyed=True))) == 1, bad
    for bad in ("std::unordered_map<std::uint64_t, int> a;", "std::unordered_set<Token> a;",
                "std::unordered_map<int, std::string> a;\nstd::set<int, KeyedHash> b;"):
        assert len(list(faults(bad, keyed=True))) == 1, bad
    for good in ("#include <unordered_map>", "std::unordered_map<int, std::string, KeyedHash> a;"):
        assert not list(faults(good, keyed=True)), good


def main(root):
    check_itself()
    files = [file for folder in ("src", "include") for file in sorted((root / folder).rglob("*"))
             if file.suffix in (".h", ".cc")]
    if not files:
        sys.exit(f"{root}: no source in src/ and include/")
    wrong = [f"{file.relative_to(root)}:{line}: {what}" for file in files
             for line, what in faults(file.read_text(), str(file.relative_to(root)).startswith(KEYED))]
    print("\n".join(wrong) or f"{len(files)} files, no table without a key")
    sys.exit(bool(wrong))


main(pathlib.Path(sys.argv[1]))
