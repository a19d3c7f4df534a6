"""Finding things: line retrieval, needles, passkeys, key-value records, copying, labelling, counting.

Every task writes one context and any number of questions on it (see chunks.py).
"""

import words
from chunks import (ENDED, FILLER, LEAD, QUESTION, Filled, adjective, alike, digits, distinct, fixed, learned, noun,
                    register, sentence, split_digits, text_chunks, uuid, worded)

HEADER = ("Below is a record of lines I want you to remember.",
          " Each line begins with 'line <line index>' and contains a '<REGISTER_CONTENT>' at the end of the line as a"
          " numerical value.",
          " For each line index, memorize its corresponding <REGISTER_CONTENT>.",
          " At the end of the record, I will ask you to retrieve the corresponding <REGISTER_CONTENT> of a certain"
          " line index.",
          " Now the record start:")
CONTENT_IS = ": REGISTER_CONTENT is <"
RECORD_OVER = "Now the record is over."
TELL_ME = " Tell me what is the <REGISTER_CONTENT> in line"
NEED_NUMBER = "? I need the number."

SPECIAL_KINDS = ("numbers", "uuids", "words")
HIDDEN = {kind: (f"A special magic {kind[:-1]} is hidden within the following text.", " Make sure to memorize it.",
                 f" I will quiz you about the {kind[:-1]} afterwards.") for kind in SPECIAL_KINDS}
ONE_OF = {kind: f"One of the special magic {kind} for" for kind in SPECIAL_KINDS}
WHAT_SPECIAL = {kind: f"What is the special magic {kind[:-1]} for" for kind in SPECIAL_KINDS}
MENTIONED = " mentioned in the provided text"
THE_SPECIAL = {kind: f"? The special magic {kind[:-1]} for" for kind in SPECIAL_KINDS}

PASSKEY_HEADER = ("There is an important info hidden inside a lot of irrelevant text.", " Find it and memorize it.",
                  " I will quiz you about the important information there.")
PASSKEY = "The pass key is"
PASSKEY_AGAIN = " is the pass key."
REMEMBER = ". Remember it."
ASK_PASSKEY = "What is the pass key? The pass key is"

JSON_HEADER = "Extract the value corresponding to the specified key in the JSON object below."
JSON_KEY = "Key: \""
JSON_VALUE = "Corresponding value: \""

LABEL_INPUT = "Input:"
LABEL_OUTPUT = "Label:"
COPY = "Repeat the text."
COUNT_ASK = "How many times does this passage appear:"
PASSAGE = "Passage:"

# Other wordings of the questions, for a part of the training questions; {} is the key.
OTHER_WORDING = 0.35
LINE_QUESTIONS = (" What is the number in line{}?", " What is the register content of line{}?",
                  " Which number is in line{}?", " Give me the number of line{}.", " What is in line{}?",
                  " What is the <REGISTER_CONTENT> in line{}?", " Which content has line{}?", " Find the line{}.",
                  " I need the number in line{}.", " What number does line{} hold?", " line{}:", "{}?")
NEEDLE_QUESTIONS = (" What is the magic [] for{}?", " Which special magic [] belongs to{}?", " Find the [] for{}.",
                    " What is the special magic [] for{}?", " Give me the magic [] of{}.", " What is the [] of{}?",
                    " Which [] is for{}?", " I need the special magic [] for{}.",
                    " What is the special magic [] for{} in the text?")
PASSKEY_QUESTIONS = (" What is the pass key?", " What is the passkey?", " Give me the pass key.", " Find the pass key.",
                     " Which pass key is in the text?", " I need the pass key.", " What is the pass key in the text?")
RECORD_QUESTIONS = (" What is the value of{}?", " What is the value of the key{}?", " What is{}?",
                    " Which value has the key{}?", " Give me the value of{}.", "{}:", " Which value has{}?",
                    " Look up{}.", " What does{} stand for?")
LABEL_WORDINGS = (("Question:", "Type:"), ("Word:", "Label:"), ("Word:", "Kind:"), ("Text:", "Label:"))
TREC_HEADER = "Please determine the type of the question below"
TREC_EXAMPLES = " Here are some examples of questions"


def phrases():
    """The fixed wordings, each of which becomes one piece of the vocabulary, but for the full stop or colon at its end:
    that stays a piece of its own, so that no piece joins the end of a word to punctuation."""
    for phrase in _phrases():
        yield phrase.rstrip(". :") if phrase[-1] in ". :" and len(phrase) > 3 and phrase != NEED_NUMBER else phrase


def _phrases():
    yield from HEADER
    yield from (CONTENT_IS, RECORD_OVER, TELL_ME, NEED_NUMBER, MENTIONED, PASSKEY, PASSKEY_AGAIN, REMEMBER,
                ASK_PASSKEY, JSON_HEADER, JSON_KEY, JSON_VALUE, LABEL_INPUT, LABEL_OUTPUT, COPY, COUNT_ASK, PASSAGE)
    yield from PASSKEY_HEADER
    yield from (text.removeprefix(" ").removeprefix("The") for text in FILLER[:3])
    yield from FILLER[3:]
    for kind in SPECIAL_KINDS:
        yield from HIDDEN[kind]
        yield from (ONE_OF[kind], WHAT_SPECIAL[kind], THE_SPECIAL[kind])
    yield from ("line", " is", "\": \"", "\",", "The", " The", " the", " this", " is")


# ---- line retrieval -------------------------------------------------------------------------------------------------

def line_key(rng):
    return adjective(rng), noun(rng)


def key_chunks(key):
    return fixed(" " + key[0], "-", key[1])


def register_line(key, value, learn=False):
    return (fixed("line") + key_chunks(key) + fixed(CONTENT_IS)
            + (learned(value) if learn else fixed(*split_digits(value))) + fixed(">", "\n"))


def lines(rng, encoder, room, share, questions=None):
    """LongEval's line retrieval: the record, then questions in its wording, one answer after each."""
    out = Filled(encoder)
    if room > 300 or rng.random() < 0.2:
        out.add(fixed(*HEADER, "\n", "\n"))
    record = []
    keys = set()
    tangled = questions is None and rng.random() < 0.6
    related = rng.choice((0.0, 0.3, 0.7)) if questions is None else 0.0
    while out.size < share * room - 16:
        key = line_key(rng)
        if record and related and rng.random() < related:  # half of another line's: only both words tell which
            other = rng.choice(record)[0]
            key = (key[0], other[1]) if rng.random() < 0.6 else (other[0], key[1])
        if key not in keys:
            keys.add(key)
            value = alike(rng, rng.choice(record)[1]) if tangled and record and rng.random() < 0.7 else register(rng)
            record.append((key, value))
            out.add(register_line(*record[-1]))
    if not record:
        return out.parts
    again = rng.random() < 0.25 and questions is None
    asked = 0
    if questions or rng.random() < 0.8:
        out.add(fixed("\n", RECORD_OVER))
    if again:  # the same lines in another order: the densest questions there are
        out.add(fixed("\n"))
    while out.size < room and asked != questions:
        key, value = rng.choice(record)
        if again:
            out.add(register_line(key, value, learn=True))
        elif questions is None and rng.random() < OTHER_WORDING:
            out.add(worded(rng.choice(LINE_QUESTIONS), key_chunks(key)) + fixed(" ") + learned(value) + ENDED)
        else:
            out.add([QUESTION] + fixed(TELL_ME) + key_chunks(key) + fixed(NEED_NUMBER, " ") + learned(value)
                    + ENDED)
        asked += 1
    return out.parts


# ---- needles, passkeys, key-value records ----------------------------------------------------------------------------

def special(rng):
    """Kind, source of keys, source of values: RULER's needles."""
    kind = rng.choice(SPECIAL_KINDS)
    key = (uuid if rng.random() < 0.25 else
           lambda r: " ".join((adjective(r), noun(r))) if r.random() < 0.5 else noun(r))
    value = {"numbers": lambda r: digits(r, 7, 7), "uuids": uuid,
             "words": lambda r: adjective(r) + "-" + noun(r)}[kind]
    return kind, key, value


def needle(kind, key, value):
    return fixed(ONE_OF[kind], *text_chunks(" " + key), " is:", *text_chunks(" " + value), ".")


def ask_needle(kind, key, value):
    return ([QUESTION] + fixed(WHAT_SPECIAL[kind], *text_chunks(" " + key), MENTIONED) + [LEAD]
            + fixed(THE_SPECIAL[kind], *text_chunks(" " + key), MENTIONED, " is")
            + [(chunk, True) for chunk in text_chunks(" " + value)] + ENDED)


def needles(rng, encoder, room, share, questions=None):
    """RULER's needles: one or several in filler prose, or nothing but needles."""
    kind, make_key, make_value = special(rng)
    out = Filled(encoder)
    if room > 300 or rng.random() < 0.2:
        out.add(fixed(*HIDDEN[kind], "\n"))
    dense = rng.random() < 0.4
    pairs = []
    limit = share * room
    wanted = 10**9 if dense else rng.choice((1, 1, 2, 4, 8))
    body = []
    while out.size < limit:
        if len(pairs) < wanted and (dense or (not body and limit < 200) or rng.random() < wanted * 20 / limit):
            pairs.append((make_key(rng), make_value(rng)))
            out.add(needle(kind, *pairs[-1]) + (fixed("\n") if dense else fixed()))
            body.append(0)
        elif not dense:
            out.add(sentence(rng))
    if not pairs:
        pairs.append((make_key(rng), make_value(rng)))
        out.add(fixed(" ") + needle(kind, *pairs[-1]))
    pairs = list(dict(pairs).items())
    out.add(fixed("\n"))
    asked = 0
    while out.size < room and asked != questions:
        key, value = rng.choice(pairs)
        if questions is None and rng.random() < OTHER_WORDING:
            out.add(worded(rng.choice(NEEDLE_QUESTIONS).replace("[]", kind[:-1]), fixed(*text_chunks(" " + key)))
                    + [(chunk, True) for chunk in text_chunks(" " + value)] + ENDED)
        else:
            out.add(ask_needle(kind, key, value))
        asked += 1
    return out.parts


def passkey(rng, encoder, room, share, questions=None):
    """The passkey in filler prose, at any depth."""
    out = Filled(encoder)
    if room > 300 or rng.random() < 0.3:
        out.add(fixed(*PASSKEY_HEADER))
    key = digits(rng, 5, 5) if rng.random() < 0.7 else digits(rng, 4, 8)
    limit = share * room - 25
    depth = rng.random() * max(limit - out.size, 0) + out.size
    hidden = False
    cycle = rng.random() < 0.5
    step = 0
    while out.size < limit or not hidden:
        if not hidden and out.size >= depth:
            out.add(fixed(" " + PASSKEY, " ", *key, REMEMBER, " ", *key, PASSKEY_AGAIN))
            hidden = True
        elif cycle:
            text = FILLER[step % len(FILLER)]
            out.add(fixed(text if text.startswith(" ") else " " + text))
            step += 1
        else:
            out.add(sentence(rng))
    asked = 0
    most = 1 if questions else 2
    while asked < most:
        if questions is None and rng.random() < OTHER_WORDING:
            out.add(worded(rng.choice(PASSKEY_QUESTIONS)) + learned(" " + key) + ENDED)
        else:
            out.add([QUESTION] + fixed("\n", ASK_PASSKEY) + learned(" " + key) + ENDED)
        asked += 1
    return out.parts


def records(rng, encoder, room, share, questions=None):
    """A JSON object of keys and values, and questions on its keys."""
    out = Filled(encoder)
    if room > 300 or rng.random() < 0.2:
        out.add(fixed(JSON_HEADER, "\n"))
    make_key, make_value = (rng.choice((uuid, lambda r: digits(r, 4, 8), lambda r: adjective(r) + "-" + noun(r), noun,
                                        lambda r: f"{r.getrandbits(32):08x}")) for _ in range(2))
    out.add(fixed("{"))
    pairs = {}
    while out.size < share * room - 8:
        key, value = make_key(rng), make_value(rng)
        if key not in pairs:
            pairs[key] = value
            out.add(fixed("\"", *text_chunks(key), "\": \"", *text_chunks(value), "\",", "\n"))
    out.add(fixed("}", "\n"))
    if not pairs:
        return out.parts
    keys = list(pairs)
    asked = 0
    while out.size < room and asked != questions:
        key = rng.choice(keys)
        answer = [(chunk, True) for chunk in text_chunks(pairs[key])]
        if questions is None and rng.random() < OTHER_WORDING:
            # A key between quotes is cut as in the record; after a space it is not.
            named = (fixed(" \"", *text_chunks(key), "\"") if rng.random() < 0.6 else
                     fixed(*text_chunks(" " + key)))
            out.add(worded(rng.choice(RECORD_QUESTIONS), named)[:-1] + fixed("Answer: \"") + answer
                    + ENDED)
        else:
            out.add([QUESTION] + fixed(JSON_KEY, *text_chunks(key), "\"") + [LEAD] + fixed("\n", JSON_VALUE) + answer
                    + ENDED)
        asked += 1
    return out.parts


# ---- copying, labelling, counting ------------------------------------------------------------------------------------

def scattered(rng, count):
    """Random chunks of every kind."""
    out = []
    for _ in range(count):
        kind = rng.random()
        if kind < 0.4:
            out.append(" " + noun(rng))
        elif kind < 0.7:
            out += list(digits(rng, 1, 3))
        elif kind < 0.85:
            out.append(rng.choice((",", ".", ":", "-", "\n", ">", "<", " is", " the")))
        else:
            out += ["-", adjective(rng)]
    return out


def copying(rng, encoder, room, share, questions=None):
    """A text to be repeated after a bar; or random segments, some of which come again."""
    out = Filled(encoder)
    if questions or rng.random() < 0.25:
        text = Filled(encoder)
        while text.size < 0.45 * room - 6:
            text.add(fixed(*scattered(rng, 2)))
        text = [chunk for chunk, _ in text.parts]
        return fixed(COPY, "\n", *text, "|") + [(chunk, True) for chunk in text] + ENDED
    segments = []
    while out.size < room:
        if segments and rng.random() < 0.6:
            segment = rng.choice(segments)
            # Nothing tells that a segment starts again; what follows its first few chunks is determined.
            known = 2 if len(segment) > 3 else 1
            out.add(fixed(*segment[:known]) + [(chunk, True) for chunk in segment[known:]])
        else:
            segments.append(scattered(rng, rng.randint(4, 24)))
            out.add(fixed(*segments[-1]))
    return out.parts


def labelling(rng, encoder, room, share, questions=None):
    """Few-shot labelling: each word has a label, learned from the examples."""
    labels = distinct(noun, rng.randint(2, 6), rng)
    count = max(3, int(share * room / 24))
    items = {word: rng.choice(labels) for word in distinct(noun, count, rng)}
    out = Filled(encoder)
    given, wanted = LABEL_INPUT, LABEL_OUTPUT
    if questions is None and rng.random() < 0.5:
        given, wanted = rng.choice(LABEL_WORDINGS)
        if rng.random() < 0.5:
            out.add(fixed(TREC_HEADER, ".", TREC_EXAMPLES, ".", "\n", "\n"))
    seen = set()
    names = list(items)
    rng.shuffle(names)
    asked = 0
    order = names + [rng.choice(names) for _ in range(room)]
    for word in order:
        if out.size >= room or asked == questions:
            break
        noise = fixed(" " + rng.choice(words.adverbs)) if rng.random() < 0.3 else fixed()
        learn = word in seen
        out.add(([QUESTION] if learn else []) + fixed(given) + noise + fixed(" " + word, "\n", wanted)
                + [(" " + items[word], learn)] + (ENDED if learn else fixed("\n")))
        seen.add(word)
        asked += learn
    return out.parts


def counting(rng, encoder, room, share, questions=None):
    """How often a passage appears."""
    out = Filled(encoder)
    passages = [sentence(rng) for _ in range(rng.randint(2, 4))]
    counts = [0] * len(passages)
    while out.size < share * room - 20:
        which = rng.randrange(len(passages))
        if counts[which] < 9 and rng.random() < 0.5:
            counts[which] += 1
            out.add(fixed(PASSAGE) + passages[which] + fixed("\n"))
        else:
            out.add(fixed(PASSAGE) + sentence(rng) + fixed("\n"))
        if min(counts) >= 9:
            break
    for which in range(len(passages))[:questions]:
        out.add([QUESTION] + fixed(COUNT_ASK[:-1], ":") + passages[which] + fixed(" ") + learned(str(counts[which]))
                + ENDED)
    return out.parts


TASKS = {"lines": lines, "needles": needles, "passkey": passkey, "records": records, "copying": copying,
         "labelling": labelling, "counting": counting}
