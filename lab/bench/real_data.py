#!/usr/bin/env python3
"""Texts and questions for lab/bench/real.sh.

    real_data.py prose FILE                  the English prose of Debian's package debian-handbook
    real_data.py plain DOCUMENTS FILE N M    documents N to M-1 of ../shared/data/plain, in RULER's layout
    real_data.py shifted DOCUMENTS FILE N M  the same, each a few words further on: methods that cut a text into parts
                                             cut it elsewhere
    real_data.py tools FILE TOKENS FIRST N   N texts of up to so many tokens with what people ask of a counter; four
                                             questions on each, whose answer is the request and the call for it

Small models take the request of another person when they write a call at once. They are asked to repeat it first, in
the form of four examples.
"""
import html.parser
import json
import pathlib
import random
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


def plain(documents, out, first, end, shifted=False):
    lines = []
    for number, document in list(enumerate(map(json.loads, documents.open(encoding="utf-8"))))[first:end]:
        before = " ".join(["Read"] + ["on"] * (7 * number % 31 + 3)) + ".\n\n" if shifted else ""
        for question in document["questions"]:
            record = {"input": before + document["text"].rstrip() + "\n\n" + question["q"], "answer_prefix": "",
                      "outputs": question["accept"]}
            lines.append(json.dumps({"index": len(lines)} | record) + "\n")
    out.write_text("".join(lines), encoding="utf-8")


TOOLS = [("book_room", "book a room in", "town", "nights", "guests", "{} nights, {} guests"),
         ("rent_car", "rent a car in", "town", "days", "seats", "{} days, {} seats"),
         ("send_parcel", "send a parcel to", "town", "kilograms", "value", "{} kilograms, value {}"),
         ("order_meal", "order a meal at", "restaurant", "portions", "table", "{} portions, table {}")]
CHARACTERS, QUESTIONS = 2.4, 4  # of a token, fewer than there are; on a text


def request(draws, tool):
    """What someone asks for, and the call for it."""
    name, wish, place, first, second, form = tool
    town, a, b = proper(draws), draws.randint(2, 9), draws.randint(2, 9)
    call = {"name": name, "arguments": {place: town, first: a, second: b}}
    return f"Please {wish} {town}: {form.format(a, b)}.", json.dumps(call, separators=(",", ":"))


def proper(draws):
    """A name that no other is like."""
    return "".join(draws.choice("bcdfghjklmnprstvwz") + draws.choice("aeiou")
                   for _ in range(draws.randint(2, 3))).title() + draws.choice("bdgklmnprstvz")


def tools(out, tokens, first, count):
    lines = []
    for seed in range(first, first + count):
        draws = random.Random(f"tools {seed}")
        head = "A counter writes the call of a tool for what people ask for. Examples:\n\n"
        for tool in TOOLS:
            wish, call = request(draws, tool)
            head += f"Request: {proper(draws)} {proper(draws)}: {wish}\nCall: {call}\n"
        head += "\nThe conversation:\n"
        wishes = []
        while len(head) + sum(len(who + wish) + 3 for who, wish, _ in wishes) < CHARACTERS * tokens - 300:
            wishes.append((f"{proper(draws)} {proper(draws)}", *request(draws, draws.choice(TOOLS))))
        text = head + "".join(f"\n{who}: {wish}" for who, wish, _ in wishes)
        for who, _, call in draws.sample(wishes, QUESTIONS):
            record = {"input": f"{text}\n\nWrite the request of {who}, and then the call for it, in two lines as in the "
                               "examples.", "answer_prefix": f" Request: {who}: Please", "outputs": [call]}
            lines.append(json.dumps({"index": len(lines)} | record) + "\n")
    out.write_text("".join(lines), encoding="utf-8")


def main():
    if len(sys.argv) == 3 and sys.argv[1] == "prose":
        prose(pathlib.Path(sys.argv[2]))
    elif len(sys.argv) == 6 and sys.argv[1] in ("plain", "shifted"):
        plain(*map(pathlib.Path, sys.argv[2:4]), *map(int, sys.argv[4:]), shifted=sys.argv[1] == "shifted")
    elif len(sys.argv) == 6 and sys.argv[1] == "tools":
        tools(pathlib.Path(sys.argv[2]), *map(int, sys.argv[3:]))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
