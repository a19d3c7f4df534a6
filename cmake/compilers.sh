#!/usr/bin/env bash
# Whether other compilers take the sources, warnings included, without making anything of them.
#   cmake/compilers.sh BUILD COMPILER [OPTION…]     BUILD: a build folder, for compile_commands.json
#   cmake/compilers.sh build clang++-19 -stdlib=libc++
# FILES, a regular expression, chooses among the sources: FILES='src/base/' cmake/compilers.sh …
set -euo pipefail
build=$1 compiler=$2
shift 2
python3 - "$build" "${FILES:-/(src|lab)/}" "$compiler" -fsyntax-only -Wno-unknown-warning-option "$@" <<'END'
import concurrent.futures, json, os, re, shlex, subprocess, sys
build, files, *compiler = sys.argv[1:]

def command(entry):
    words = shlex.split(entry["command"])
    out = []
    while words:
        word = words.pop(0)
        if word in ("-o", "-include", "-MF", "-MT"):
            words.pop(0)
        elif re.match(r"-(I|isystem|D|std=|W|m|f|pthread)", word) and word not in ("-MD", "-Winvalid-pch") \
                and not word.startswith(("-fira", "-fno-tree", "-fpch")):
            out += [word, words.pop(0)] if word == "-isystem" else [word]
    return [*compiler, *out, entry["file"]]

def check(entry):
    return entry["file"], subprocess.run(command(entry), cwd=entry["directory"], capture_output=True, text=True)

entries = [e for e in json.load(open(os.path.join(build, "compile_commands.json")))
           if re.search(files, e["file"]) and "/_deps/" not in e["file"] and "cmake_pch" not in e["file"]]
entries = list({e["file"]: e for e in entries}.values())
failed = 0
with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
    for file, result in pool.map(check, entries):
        if result.returncode or result.stderr:
            failed += 1
            print(f"== {file}\n{result.stderr[:3000]}", flush=True)
print(f"{' '.join(compiler)}: {len(entries)} files, {failed} with errors or warnings")
sys.exit(failed > 0)
END
