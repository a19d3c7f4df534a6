#!/usr/bin/env python3
"""Texts and questions for lab/bench/real.sh.

    real_data.py prose FILE                  the English prose of Debian's package debian-handbook
    real_data.py plain DOCUMENTS FILE N M    documents N to M-1 of ../shared/data/plain, in RULER's layout
"""
import html.parser
import json
import pathlib
import sys

HANDBOOK = pathlib.Path("/usr/share/doc/debian-handbook/html/en-US")


class Paragraphs(html.parser.HTMLParser):
    """The text of <div class="para">, without what stands in further elements of a block."""

    def __init__(self):
        super().__init__()
        self.found, self.open, self.text = [], [], []

    def handle_starttag(self, tag, attributes):
        if tag == "div":
            self.end()
            self.open.append(dict(attributes).get("class") == "para")

    def handle_endtag(self, tag):
        if tag == "div" and self.open:
            self.end()
            self.open.pop()

    def handle_data(self, data):
        if self.open and self.open[-1]:
            self.text.append(data)

    def end(self):
        text = " ".join("".join(self.text).split())
        self.text = []
        if len(text) > 80:
            self.found.append(text)


def prose(out):
    pages = sorted(HANDBOOK.glob("*.html"))
    if not pages:
        sys.exit(f"real_data.py: no pages in {HANDBOOK}: apt install debian-handbook")
    found = []
    for page in pages:
        reader = Paragraphs()
        reader.feed(page.read_text(encoding="utf-8"))
        found += reader.found
    out.write_text("\n".join(dict.fromkeys(found)) + "\n", encoding="utf-8")


def plain(documents, out, first, end):
    lines = []
    for document in list(map(json.loads, documents.open(encoding="utf-8")))[first:end]:
        for question in document["questions"]:
            record = {"input": document["text"].rstrip() + "\n\n" + question["q"], "answer_prefix": "",
                      "outputs": question["accept"]}
            lines.append(json.dumps({"index": len(lines)} | record) + "\n")
    out.write_text("".join(lines), encoding="utf-8")


def main():
    if len(sys.argv) == 3 and sys.argv[1] == "prose":
        prose(pathlib.Path(sys.argv[2]))
    elif len(sys.argv) == 6 and sys.argv[1] == "plain":
        plain(*map(pathlib.Path, sys.argv[2:4]), *map(int, sys.argv[4:]))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
