"""Man pages and completions say what the program does.

    python3 check_manual.py PROGRAM MANUAL     MANUAL: the folder that cmake/manual.py wrote
"""
import os
import re
import shutil
import subprocess
import sys

program, manual = sys.argv[1:]
pages = sorted(os.listdir(os.path.join(manual, "man1")))
assert len(pages) > 20, pages

# Every flag that a command's help shows stands in its page.
for words in (["run"], ["eval", "lines"], ["methods"]):
    shown = subprocess.run([program, *words, "--help"], check=True, capture_output=True,
                           text=True).stdout
    with open(os.path.join(manual, "man1", "-".join(["ballast", *words]) + ".1")) as file:
        page = file.read().replace("\\-", "-")
    flags = {w.split("[")[0].split(",")[-1] for line in shown.splitlines() if line.startswith("  -")
             for w in line.split()[:1]}
    assert len(flags) > 1, shown
    missing = [flag for flag in flags if flag not in page]
    assert not missing, f"ballast {' '.join(words)}: {missing} are not in the page"
    assert ".SH EXAMPLE" in page or "Example" not in shown, words

if shutil.which("groff"):
    for name in pages:
        said = subprocess.run(["groff", "-man", "-Tutf8", "-ww", "-Wbreak", os.path.join(manual, "man1", name)],
                              check=True, capture_output=True, text=True)
        assert not said.stderr, f"{name}: {said.stderr}"


def complete(*words):
    script = (f"source {manual}/ballast.bash; COMP_WORDS=({' '.join(words)} ''); "
              f"COMP_CWORD={len(words)}; _ballast; printf '%s\\n' \"${{COMPREPLY[@]}}\"")
    return subprocess.run(["bash", "-c", script], check=True, capture_output=True,
                          text=True).stdout.split()


assert {"run", "eval", "chat"} <= set(complete("ballast")), complete("ballast")
assert {"lines", "attention"} <= set(complete("ballast", "eval"))
assert "--question-later" in complete("ballast", "eval", "lines", "-m", "model.gguf")
if shutil.which("zsh"):
    subprocess.run(["zsh", "-n", os.path.join(manual, "_ballast")], check=True)
with open(os.path.join(manual, "ballast.fish")) as file:
    fish = file.read()
assert "__ballast_at \\'eval lines\\'' -l question-later" in fish, fish[:2000]
if shutil.which("fish"):
    offered = subprocess.run(
        ["fish", "--no-config", "-c", f"source {manual}/ballast.fish; complete -C 'ballast eval '; "
         "complete -C 'ballast eval lines -m model.gguf --question-'"],
        check=True, capture_output=True, text=True).stdout
    assert re.search(r"^lines\t", offered, re.M) and "--question-later" in offered, offered
print(f"{len(pages)} pages")
