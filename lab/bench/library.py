#!/usr/bin/env python3
"""Whether a library answers right: by sections asked alone.

    library.py MODEL plain [--out FOLDER] [--ballast build/ballast] [--sections 3]
    library.py MODEL debian [--half tuned|held-out] [--peer | --first-token N]

plain    sixteen documents: the eight of ../shared/data/plain, and data/held-out's as others beside them; the first six
         questions of each, 48 in all, and sixteen that none of them answers
debian   Debian's own books and manuals by their packages (apt-get download; nothing is kept outside FOLDER), and the
         questions of lab/bench/library.jsonl

An answer is right if it contains one of accept, in lower case and without commas; where that is a list, all of the
list. A question that has no answer is right if "Not in the library" is said. Questions on Debian's books are in the
text's words or in others, or have two places to find, or no answer. FOLDER/NAME.library is the library, which `ballast
library add` goes on with after an interruption, FOLDER/NAME.jsonl what each question gave: of every section that was
asked its answer and its evidence (score, certainty, least, missing, looked_up; see src/library/evidence.h). Prints

    right             answers, and of each kind of question
    among, first      the right document among the sections asked, and first by the question's words
    not in it         said where it is not / said where it is
    right document    of the section that was taken
    alone             answers right of the right document's section, where it was asked
    cited             right answers whose citations contain the answer

--peer asks the same questions by ordinary retrieval with llama.cpp (lab/bench/library_peer.py), of the texts that the
library holds, and prints the same rows, and the seconds to the first token; FOLDER/NAME.peer.jsonl goes on, too. --first-token
asks N questions of `ballast serve` and prints the seconds to the first token of each answer alone.
"""
import argparse
import gzip
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import time

import library_peer

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

# Texts in English, of each package one form.
PACKAGES = {"debian-handbook": "usr/share/doc/debian-handbook/html/en-US/*.html",
            "debian-policy": "usr/share/doc/debian-policy/*.txt*",
            "developers-reference": "usr/share/developers-reference/developers-reference.html",
            "debian-reference-en": "usr/share/debian-reference/*.txt*",
            "debian-faq": "usr/share/doc/debian/FAQ/*.txt*",
            "maint-guide": "usr/share/doc/maint-guide/*.txt*",
            "installation-guide-amd64": "usr/share/doc/installation-guide-amd64/en/*.txt*",
            "glibc-doc-reference": "usr/share/doc/glibc-doc-reference/**/*.html",
            "git-doc": "usr/share/doc/git/html/user-manual.html",
            "doc-rfc-std": "usr/share/doc/RFC/**/*.txt*"}


NOWHERE = """What is the telephone number of the roofer?
In which year was the lodger born?
How much does the new sponsor pay the club each month?
How many kilograms does the appliance weigh?
Which airline did Emeric fly with?
What is the name of the duty officer's husband?
At which bank does the tenant have an account?
In which programming language is the text-recognition library written?
How many grams of chocolate are needed?
What is the price of the appliance?
Who painted the portrait in the hall of the depot?
Which football team does the caretaker support?
What is the capital of Mongolia?
At what temperature does lead melt?
How many passengers may the Silver Gull carry?
What was the name of Ilka's father?""".splitlines()


BATCH = 8


def lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def plain_corpus(folder, data):
    questions = []
    for document in lines(data / "plain" / "documents.jsonl"):
        name = document["name"] + ".txt"
        (folder / name).write_text(document["text"], encoding="utf-8")
        questions += [{"q": one["q"], "accept": one["accept"], "documents": [name]}
                      for one in document["questions"][:6]]
    others = [*sorted((ROOT / "data" / "held-out").glob("*.txt")), ROOT / "examples" / "story.txt"]
    for path in others[-8:]:
        (folder / path.name).write_bytes(path.read_bytes())
    return questions + [{"q": one, "accept": [], "documents": []} for one in NOWHERE]


def unpack(package, folder, cache):
    """The package's texts as files of folder/PACKAGE; whether it was there."""
    target = folder / package
    if target.exists():
        return True
    cache.mkdir(parents=True, exist_ok=True)
    found = list(cache.glob(package + "_*.deb"))
    if not found and subprocess.run(["apt-get", "download", package], cwd=cache, stdout=subprocess.DEVNULL,
                                    stderr=subprocess.DEVNULL, check=False).returncode:
        return False
    tree = cache / (package + ".tree")
    subprocess.run(["dpkg", "-x", next(cache.glob(package + "_*.deb")), tree], check=True)
    made = target.with_suffix(".partial")
    made.mkdir(exist_ok=True)
    for path in sorted(tree.glob(PACKAGES[package])):
        if path.is_symlink() or not path.is_file():
            continue
        content = path.read_bytes()
        name = path.name.removesuffix(".gz")
        (made / name).write_bytes(gzip.decompress(content) if path.name != name else content)
    shutil.rmtree(tree)
    made.rename(target)
    return True


def debian_corpus(folder, options):
    missing = [package for package in PACKAGES if not unpack(package, folder, options.out / "packages")]
    if missing:
        print("not to be had:", ", ".join(missing))
    return [one for one in lines(ROOT / "lab" / "bench" / "library.jsonl") if one["half"] == options.half]


def ballast(options, *arguments, quiet=True):
    command = ["nice", "-n", "10", options.ballast, "library", *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE if quiet else None, text=True).stdout


def add(texts, library, options):
    begin = time.time()
    pack = ["--pack", options.pack] if options.pack else []
    ballast(options, "add", "-m", options.model, "--library", library, *pack, texts, quiet=False)
    print(f"added in {time.time() - begin:.0f} s")


def unasked(questions, found):
    known = {one["question"] for one in lines(found)} if found.exists() else set()
    return [one["q"] for one in questions if one["q"] not in known]


def ask(questions, library, found, options):
    """Asks what `found` has no answer to, some questions at a time."""
    begin = time.time()
    left = unasked(questions, found)
    if options.peer:
        library_peer.ask(left, library, options.model, found)
        print(f"{len(left)} asked in {time.time() - begin:.0f} s")
        return
    batches = -(-len(left) // BATCH)
    for at in range(batches):  # each has questions on most documents
        asked = options.out / "questions.txt"
        asked.write_text("".join(one + "\n" for one in left[at::batches]), encoding="utf-8")
        answers = json.loads(ballast(options, "ask", "-m", options.model, "--library", library, "--questions", asked,
                                     "--sections", options.sections, "--temperature", "0", "-n", "48", "--json"))
        with found.open("a", encoding="utf-8") as log:
            log.writelines(json.dumps(one, ensure_ascii=False) + "\n" for one in answers["answers"])
    print(f"{len(left)} asked in {time.time() - begin:.0f} s")


def is_right(question, answer):
    said = answer.lower().replace(",", "")
    wanted = [[accept] if isinstance(accept, str) else accept for accept in question["accept"]]
    return any(all(part.lower().replace(",", "") in said for part in parts) for parts in wanted)


def is_of(question, name):
    return any(one in name for one in question["documents"])


def count(values):
    values = list(values)
    return f"{sum(values)} of {len(values)}"


def report(questions, answers):
    pairs = list(zip(questions, answers, strict=True))
    there = [(q, a) for q, a in pairs if q["accept"]]
    absent = [(q, a) for q, a in pairs if not q["accept"]]
    right = [(q, a) for q, a in there if a["supported"] and is_right(q, a["answer"])]
    print("right            ", count(a["supported"] and is_right(q, a["answer"]) for q, a in there))
    for kind in dict.fromkeys(q["kind"] for q, _ in there if "kind" in q):
        print(f"  {kind:15}", count(a["supported"] and is_right(q, a["answer"]) for q, a in there if q["kind"] == kind))
    print("among, first     ", count(any(is_of(q, d["name"]) for d in a["documents"]) for q, a in there) + ",",
          count(bool(a["documents"]) and is_of(q, a["documents"][0]["name"]) for q, a in there))
    print("not in it        ", count(not a["supported"] for _, a in absent) + " /",
          count(not a["supported"] for _, a in there))
    return there, right


def report_library(questions, answers):
    there, right = report(questions, answers)
    taken = [(q, a, [a["documents"][i]["name"] for i in a["from"]]) for q, a in there]
    print("right document   ", count(any(is_of(q, name) for name in names) for q, a, names in taken))
    alone = [[d for d in a["documents"] if is_of(q, d["name"])] for q, a in there]
    print("alone            ", count(any(is_right(q, d["answer"]) for d in of)
                                     for (q, a), of in zip(there, alone) if of))
    print("cited            ", count(is_right(q, " ".join(c["text"] for c in a["citations"])) for q, a in right))


def report_first(seconds):
    print(f"first token       {statistics.mean(seconds):.1f} s, median {statistics.median(seconds):.1f},"
          f" longest {max(seconds):.1f}")


def report_peer(questions, answers):
    report(questions, answers)
    report_first([a["seconds_to_first"] for a in answers])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("corpus", choices=("plain", "debian"))
    parser.add_argument("--half", choices=("tuned", "held-out"), default="tuned")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build" / "library")
    parser.add_argument("--ballast", default=ROOT / "build" / "ballast")
    parser.add_argument("--data", type=pathlib.Path, default=ROOT / ".." / "shared" / "data")
    parser.add_argument("--sections", default="3")
    parser.add_argument("--pack", default="")
    parser.add_argument("--make", action="store_true", help="write the corpus, read nothing")
    parser.add_argument("--peer", action="store_true", help="ordinary retrieval with llama.cpp in place of Ballast")
    parser.add_argument("--first-token", type=int, default=0, metavar="N", help="of N questions, by `ballast serve`")
    parser.add_argument("--again", action="store_true", help="print what there is, ask nothing")
    options = parser.parse_args()
    texts = options.out / options.corpus
    texts.mkdir(parents=True, exist_ok=True)
    questions = plain_corpus(texts, options.data) if options.corpus == "plain" else debian_corpus(texts, options)
    if options.make:
        return
    library = options.out / f"{options.corpus}.{options.model.stem}.library"
    if options.first_token:
        asked = [one["q"] for one in questions[::max(1, len(questions) // options.first_token)]][:options.first_token]
        report_first(library_peer.first_tokens(asked, library, options.model, options.ballast))
        return
    found = options.out / f"{options.corpus}.{options.half}.{options.model.stem}{'.peer' * options.peer}.jsonl"
    if not options.again:
        if not options.peer:
            add(texts, library, options)
        ask(questions, library, found, options)
    answers = {one["question"]: one for one in lines(found)}
    questions = [one for one in questions if one["q"] in answers]
    (report_peer if options.peer else report_library)(questions, [answers[one["q"]] for one in questions])
    if options.peer:
        return
    size = sum(path.stat().st_size for path in library.iterdir())
    text = sum(os.path.getsize(path) for path in texts.rglob("*") if path.is_file())
    print(f"bytes             {size:,} of the library, {text:,} of the files")


if __name__ == "__main__":
    main()
