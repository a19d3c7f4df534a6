#!/usr/bin/env python3
"""Whether src/ and include/ ask the operating system for anything outside of src/base/os.

    check_system.py SOURCE

Elsewhere are the headers of ISO C++, of libraries and of the compiler; and those below, whose calls are
the same on Linux and macOS, in the files that are named.
"""
import pathlib
import re
import sys

HOME = "src/base/os/"
# Libraries and compilers: those in folders of their own, and these.
LIBRARIES = re.compile(
    r"(CLI|benchmark|curl|fmt|gmock|gtest|hwy|nlohmann|pybind11|sanitizer|unicode|webp)/.*"
    r"|(arm_neon|cpuid|histedit|immintrin|libstemmer|microhttpd|mpi|png|sentencepiece_processor|stdbool"
    r"|stddef|stdint|turbojpeg|zip|zlib)\.h")
FILES = {"fcntl.h", "sys/stat.h", "unistd.h"}
SOCKETS = {"arpa/inet.h", "netdb.h", "poll.h", "strings.h", "sys/select.h", "sys/socket.h", "unistd.h"}
SAME = {
    "src/base/mapped_file.cc": FILES,
    "src/base/output_file.cc": FILES,
    "src/base/partial_files.cc": FILES,
    "src/base/read_file.cc": FILES,
    "src/cli/generate.cc": FILES,
    "src/cli/serve.cc": FILES,
    "src/hub/download.cc": FILES,
    "src/library/library.cc": FILES,
    "src/serve/texts/contexts.cc": FILES,
    "src/serve/http/http.cc": SOCKETS,
    "src/serve/texts/owners.cc": FILES,
    "src/serve/http/doorman.cc": SOCKETS,
}
SYSTEMS = re.compile(r"__(linux|APPLE|GLIBC|unix|MACH)__|\"/(proc|sys)/")


def faults(source):
    for folder in ("src", "include"):
        for file in sorted((source / folder).rglob("*")):
            name = str(file.relative_to(source))
            if file.suffix not in (".h", ".cc", ".inc") or name.startswith(HOME):
                continue
            for number, line in enumerate(file.read_text().splitlines(), 1):
                header = re.match(r"#\s*include <([^>]+)>", line)
                if header and "." in header[1] and not LIBRARIES.fullmatch(header[1]) and (
                        header[1] not in SAME.get(name, ())):
                    yield f"{name}:{number}: <{header[1]}> belongs in {HOME}"
                elif SYSTEMS.search(line):
                    yield f"{name}:{number}: what systems differ in belongs in {HOME}: {line.strip()}"


found = list(faults(pathlib.Path(sys.argv[1])))
print("\n".join(found))
sys.exit(1 if found else 0)
