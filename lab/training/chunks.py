"""Pieces that the tasks are made of: words, numbers, filler sentences, and the marks of a question.

Text is a list of (chunk, learn) pairs. Chunks are the units of the vocabulary; `learn` marks what the context
determines, which is what the loss is taken on.
"""

import words

# Marks without text. A question begins at QUESTION; at LEAD begins a beginning of the answer that is given.
QUESTION = ("", False)
LEAD = ("", True)

# Pieces of the vocabulary that no text holds: who speaks, and the end of a turn.
SYSTEM, USER, ASSISTANT, END = TURNS = ("<|system|>", "<|user|>", "<|assistant|>", "<|end|>")
# Behind every answer: its end is learned, in plain text too, so that what follows in a context is never gone on with.
ENDED = [(END, True), ("\n", False)]

FILLER = ("The grass is green.", " The sky is blue.", " The sun is yellow.", " Here we go.", " There and back again.")


def fixed(*chunks):
    return [(chunk, False) for chunk in chunks]


def learned(text):
    """Answers are digits or words; digits are chunks of their own."""
    return [(chunk, True) for chunk in split_digits(text)]


def split_digits(text):
    run = ""
    for char in text:
        if char.isdigit():
            if run:
                yield run
            yield char
            run = ""
        else:
            run += char
    if run:
        yield run


def adjective(rng):
    return rng.choice(words.adjectives) if rng.random() < 0.5 else words.made_up_word(rng)


def noun(rng):
    return rng.choice(words.nouns) if rng.random() < 0.5 else words.made_up_word(rng)


def distinct(make, count, rng):
    found = dict.fromkeys(make(rng) for _ in range(count))
    while len(found) < count:
        found[make(rng)] = None
    return list(found)


def digits(rng, low, high):
    return "".join(rng.choice("0123456789") for _ in range(rng.randint(low, high)))


def register(rng):
    return str(rng.randint(1, 50000))


def alike(rng, value):
    """Another number that begins as `value` does: only the key of its line tells where to read on."""
    while True:
        kept = value[:rng.randint(1, len(value))]
        other = kept + digits(rng, 0, 5 - len(kept))
        if other != value:
            return other


def uuid(rng):
    value = f"{rng.getrandbits(128):032x}"
    return "-".join((value[:8], value[8:12], value[12:16], value[16:20], value[20:]))


def sentence(rng):
    """One sentence of filler prose, starting with a space."""
    kind = rng.random()
    if kind < 0.3:
        return fixed(rng.choice(FILLER[1:] + (" " + FILLER[0],)))
    first = rng.choice(words.adjectives) if rng.random() < 0.5 else None
    parts = [" The"] + ([" " + first] if first else []) + [" " + rng.choice(words.nouns)]
    parts += [" " + rng.choice(words.verbs), rng.choice((" the", " this")), " " + rng.choice(words.nouns)]
    if rng.random() < 0.4:
        parts += [" " + rng.choice(words.places), " the", " " + rng.choice(words.nouns)]
    if rng.random() < 0.3:
        parts += [" " + rng.choice(words.adverbs)]
    return fixed(*parts, ".")


def worded(text, key=()):
    """A question in other words than its task's own, on a line of its own: `text` with {} replaced by the chunks of a
    key. "Answer:" leads to the answer where no turn does. Text starts with a space."""
    before, _, after = text.removeprefix(" ").partition("{}")
    if not before and key:
        key = fixed(*split_digits(key[0][0].removeprefix(" "))) + list(key[1:])
    named = (chunk for chunk, _ in key)
    return ([QUESTION] + fixed("\n", *split_digits(before), *named, *split_digits(after)) + [LEAD]
            + fixed("\n", "Answer:"))


class Filled:
    """Collects chunks up to a number of tokens."""

    def __init__(self, encoder):
        self.encoder = encoder
        self.parts = []
        self.size = 0

    def add(self, parts):
        self.parts += parts
        self.size += self.encoder.size(parts)
        return self


def text_chunks(text):
    """Cuts a key or value into chunks: words with their space, hyphens, single digits."""
    out = []
    run = ""
    for char in text:
        if char in "- " or char.isdigit():
            if run:
                out.append(run)
            run = ""
        if char == "-" or char.isdigit():
            out.append(char)
        else:
            run += char
    return out + ([run] if run else [])
