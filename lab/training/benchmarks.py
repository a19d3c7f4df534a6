"""Tasks in the wording of RULER and LongBench, on words and facts made up here, and the replay pass of a text.

Wordings are those of the benchmarks, spelling included ("assgined", "asconcisely"), so that their files can be read
with the model. Every task writes one context and any number of questions on it (see chunks.py).
"""

import finding
import words
from chunks import (ASSISTANT, END, ENDED, LEAD, QUESTION, USER, Filled, digits, distinct, fixed, learned, noun,
                    sentence, text_chunks, worded)
from finding import MENTIONED, OTHER_WORDING, SPECIAL_KINDS, needle, special

SOME_HIDDEN = {kind: f"Some special magic {kind} are hidden within the following text" for kind in SPECIAL_KINDS}
QUIZ = {kind: f" I will quiz you about the {kind} afterwards" for kind in SPECIAL_KINDS}
MEMORIZE = " Make sure to memorize it"
WHAT_ALL = {kind: f"What are all the special magic {kind} for" for kind in SPECIAL_KINDS}
THE_SPECIALS = {kind: f" The special magic {kind} for" for kind in SPECIAL_KINDS}

TRACK = "Memorize and track the chain(s) of variable assignment hidden in the following text"
FIND_VARIABLES = "Question: Find all variables that are assigned the value"
TEXT_ABOVE = " in the text above"
TO_THE_CHAINS = " Answer: According to the chain(s) of variable assignment in the text above,"
ASSIGNED = " variables are assgined the value"
THEY_ARE = ", they are"
VARIABLE, IS_VARIABLE = "VAR", " = VAR"

NUMBERED = ("Below is a numbered list of words. In these words, some appear more often than others. Memorize the ones"
            " that appear most often")
MOST_COMMON = ("Question: What are the", " most common words in the above list")
COMMON_ARE = (" Answer: The top", " words that appear most often in the list are")

CODED = ("Read the following coded text and track the frequency of each coded word. Find the three most frequently"
         " appeared coded words")
ASK_CODED = ("Question: Do not provide any explanation. Please ignore the dots '....'. What are the three most"
             " frequently appeared words in the above coded text")
CODED_ARE = " Answer: According to the coded text above, the three most frequently appeared words are"

ON_GIVEN = {kind: f"Answer the question based on the given {kind}" for kind in ("documents", "passages")}
ONLY_ANSWER = " Only give me the answer and do not output any other words"
GIVEN_ARE = {kind: f"The following are given {kind}" for kind in ("documents", "passages")}
DOCUMENT, PASSAGE = "Document", "Passage"
ASK, ANSWER = "Question:", "Answer:"
READ_BRIEFLY = "Read the following text and answer briefly"
NOW_ANSWER = ("Now, answer the following question based on the above text, only give me the answer and do not output"
              " any other words")
A_STORY = ("You are given a story, which can be either a novel or a movie script, and a question. Answer the question"
           " asconcisely as you can, using a single phrase if possible. Do not provide any explanation")
STORY = "Story:"
ON_STORY = ("Now, answer the question based on the story asconcisely as you can, using a single phrase if possible."
            " Do not provide any explanation")

COUNT_UNIQUE = ("There are some paragraphs below sourced from Wikipedia. Some of them may be duplicates. Please"
                " carefully read these paragraphs and determine how many unique paragraphs there are after removing"
                " duplicates. In other words, how many non-repeating paragraphs are there in total")
ENTER_COUNT = ("Please enter the final count of unique paragraphs after removing duplicates. The output format should"
               " only contain the number, such as")
FINAL_ANSWER = "The final answer is"
PARAGRAPH = "Paragraph"
WHICH_PARAGRAPH = ("Here are", " paragraphs from Wikipedia, along with an abstract. Please determine which paragraph"
                   " the abstract is from")
AN_ABSTRACT = "The following is an abstract"
ENTER_PARAGRAPH = ("Please enter the number of the paragraph that the abstract is from. The answer format must be like")
ANSWER_IS = "The answer is"

REPEAT_ALL = "Repeat the previous context exactly"
REPEAT_PART = "Repeat the part of the previous context exactly, starting with"

# How people are told about, and asked for: verb phrase, kind of answer, questions.
FACTS = {
    "born": (" was born in", "town",
             ("Where was{} born?", "In which town was{} born?", "What is the birthplace of{}?")),
    "lives": (" lives in", "town", ("Where does{} live?", "In which town does{} live?", "What is the home of{}?")),
    "work": (" works with a", "thing", ("What does{} work with?", "With what does{} work?")),
    "keeps": (" keeps a", "thing", ("What does{} keep?", "Which thing does{} keep?")),
    "likes": (" likes the colour", "colour", ("Which colour does{} like?", "What colour does{} like?")),
    "number": (" lives in house number", "number", ("What is the house number of{}?",
                                                    "Which house number has{}?")),
    "year": (" came to the town in the year", "year", ("In which year did{} come to the town?",
                                                       "When did{} come to the town?")),
    "friend": (" is a friend of", "person", ("Who is the friend of{}?", "Of whom is{} a friend?")),
}
THE_FRIEND = " the friend of"


def phrases():
    """The wordings that become pieces of the vocabulary, each one piece."""
    for kind in SPECIAL_KINDS:
        yield from (SOME_HIDDEN[kind], WHAT_ALL[kind], THE_SPECIALS[kind])
    yield from (TRACK, FIND_VARIABLES, TEXT_ABOVE, TO_THE_CHAINS, ASSIGNED, THEY_ARE, VARIABLE, IS_VARIABLE, NUMBERED,
                *MOST_COMMON, *COMMON_ARE, CODED, ASK_CODED, CODED_ARE, *ON_GIVEN.values(), ONLY_ANSWER,
                *GIVEN_ARE.values(), DOCUMENT, PARAGRAPH, "Question", " Answer", "Answer", READ_BRIEFLY, NOW_ANSWER,
                A_STORY, "Story", ON_STORY, COUNT_UNIQUE, ENTER_COUNT, FINAL_ANSWER, *WHICH_PARAGRAPH, AN_ABSTRACT,
                ENTER_PARAGRAPH, ANSWER_IS, REPEAT_ALL, REPEAT_PART, THE_FRIEND,
                "Which", "Where", "When", "Who")
    yield from (verb for verb, _, _ in FACTS.values())


def listed(items):
    """Learned: items, each a list of chunks, with commas between."""
    out = []
    for i, item in enumerate(items):
        out += ([(",", True)] if i else []) + [(chunk, True) for chunk in item]
    return out + ENDED


# ---- RULER -----------------------------------------------------------------------------------------------------------

def several(rng, encoder, room, share, questions, many_values):
    """Needles of which several are asked for at once."""
    kind, make_key, make_value = special(rng)
    out = Filled(encoder)
    if room > 300 or rng.random() < 0.2:
        out.add(fixed(SOME_HIDDEN[kind], ".", MEMORIZE, ".", QUIZ[kind], ".", "\n"))
    limit = share * room
    each = rng.randint(2, 4) if room > 300 else 2
    groups = max(1, min(rng.randint(1, 4) if many_values else rng.randint(each, 8), int(limit / 90)))
    keys = distinct(make_key, groups, rng)
    pairs = [(key, make_value(rng)) for key in keys for _ in range(each if many_values else 1)]
    rng.shuffle(pairs)
    hidden = [needle(kind, *pair) for pair in pairs]
    hay = []
    size = out.size + sum(map(encoder.size, hidden))
    while size < limit:
        hay.append(sentence(rng))
        size += encoder.size(hay[-1])
    places = sorted(rng.randint(0, len(hay)) for _ in hidden)
    for i in range(len(hay) + 1):
        while places and places[0] == i:
            places.pop(0)
            out.add(fixed(" ") + hidden.pop(0))
        if i < len(hay):
            out.add(hay[i])
    asked = 0
    while out.size < room and asked != questions:
        if many_values:
            wanted = [rng.choice(keys)]
        else:
            wanted = rng.sample(keys, min(len(keys), each, max(1, int(room - out.size) // 130)))
        values = [value for want in wanted for key, value in pairs if key == want]
        named = []
        for i, key in enumerate(wanted):
            named += ([","] if i and len(wanted) > 2 else []) + ([" and"] if i and i + 1 == len(wanted) else [])
            named += text_chunks(" " + key)
        if questions is None and rng.random() < OTHER_WORDING:
            question = worded(rng.choice((" What are the magic {} for", " Which special magic {} belong to",
                                          " Give me all the {} for", " List the special magic {} for")
                                         ).format(kind) + "{}.", fixed(*named))
        else:
            question = ([QUESTION] + fixed("\n", WHAT_ALL[kind], *named, MENTIONED, "?") + [LEAD]
                        + fixed(THE_SPECIALS[kind], *named, MENTIONED, " are"))
        out.add(question + listed(text_chunks(" " + value) for value in values))
        asked += 1
    return out.parts


def multivalue(rng, encoder, room, share, questions=None):
    """RULER's needles of which a key has several, given in the order of the text."""
    return several(rng, encoder, room, share, questions, True)


def multiquery(rng, encoder, room, share, questions=None):
    """RULER's needles, of which several are asked for, answered in the order of the question."""
    return several(rng, encoder, room, share, questions, False)


def variable(rng):
    while True:
        name = "".join(rng.choice("ABCDEFGHIJKLMNOPQRSTUVWXYZ") for _ in range(5))
        if VARIABLE not in name:
            return name


def variables(rng, encoder, room, share, questions=None):
    """RULER's variable tracking: chains of assignments in filler prose."""
    out = Filled(encoder)
    if room > 300 or rng.random() < 0.2:
        out.add(fixed(TRACK, ".", "\n", "\n"))
    limit = share * room
    hops = rng.randint(1, 4)
    count = max(1, min(rng.randint(1, 4), int(limit / (18 * (hops + 1)))))
    names = distinct(variable, count * (hops + 1), rng)
    chains = [(str(rng.randint(10000, 99999)), names[i * (hops + 1):(i + 1) * (hops + 1)]) for i in range(count)]
    lines = []
    for value, chain in chains:
        at = sorted(rng.random() for _ in chain)
        for i, name in enumerate(chain):
            source = (" = ", *value) if i == 0 else (IS_VARIABLE, " " + chain[i - 1], " ")
            lines.append((at[i], fixed(VARIABLE, " " + name, *source)))
    lines.sort(key=lambda line: line[0])
    hay = []
    size = out.size + sum(encoder.size(line) + 2 for _, line in lines)
    while size < limit:
        hay.append(sentence(rng))
        size += encoder.size(hay[-1])
    done = 0
    for place, line in lines:
        upto = int(place * len(hay))
        while done < upto:
            out.add(hay[done])
            done += 1
        out.add(fixed("\n" if rng.random() < 0.3 else " ") + line + fixed("." if rng.random() < 0.3 else "\n"))
    for text in hay[done:]:
        out.add(text)
    out.add(fixed("\n"))
    asked = 0
    while out.size < room and asked != questions:
        value, chain = rng.choice(chains)
        if questions is None and rng.random() < OTHER_WORDING:
            question = worded(rng.choice((" Which variables are {}?", " Which variables have the value {}?",
                                          " Find all variables of value {}.")), fixed(*value))
        else:
            question = ([QUESTION] + fixed(FIND_VARIABLES, " ", *value, TEXT_ABOVE, ".") + [LEAD]
                        + fixed(TO_THE_CHAINS, " ", *str(len(chain)), ASSIGNED, " ", *value, THEY_ARE, ":"))
        answer = [(" " + name, True) for name in chain]
        out.add(question + answer + ENDED)
        asked += 1
    return out.parts


def common(rng, encoder, room, share, questions=None):
    """RULER's common words: some words of a numbered list come far more often than the others."""
    out = Filled(encoder)
    out.add(fixed(NUMBERED, ".", "\n"))
    most = rng.randint(1, 10) if room >= 512 else rng.randint(1, 4)
    room_for = max(10, int((share * room - 10) / 8))
    often = max(3, int(room_for * rng.uniform(0.3, 0.75) / most))
    rare = max(1, often // rng.choice((4, 6, 10)))
    pool = distinct(noun, most + max(2, (room_for - often * most) // rare), rng)
    common_words, others = pool[:most], pool[most:]
    body = common_words * often + others * rare
    rng.shuffle(body)
    body = body[:room_for + 5]
    first = list(dict.fromkeys(body))
    common_words = [word for word in first if word in set(common_words)]
    for i, word in enumerate(body):
        out.add(fixed(*([" "] if i else []), *str(i + 1), ".", " " + word))
    count = str(len(common_words))
    out.add([QUESTION] + fixed("\n", MOST_COMMON[0], " ", *count, MOST_COMMON[1], "?") + [LEAD]
            + fixed(COMMON_ARE[0], " ", *count, COMMON_ARE[1], ":"))
    for i, word in enumerate(common_words):
        out.add([(chunk, True) for chunk in (" ", *str(i + 1), ".", " " + word)])
    return out.add(ENDED).parts


def frequent(rng, encoder, room, share, questions=None):
    """RULER's frequent words: coded words whose numbers fall as a power of their rank."""
    out = Filled(encoder)
    out.add(fixed(CODED, "."))
    budget = share * room - 12
    coded = distinct(lambda r: "".join(r.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(r.randint(4, 6))),
                     max(4, min(rng.randint(5, 40), int(budget / 25))), rng)
    alpha = rng.uniform(1.2, 2.2)
    sizes = [encoder.size(fixed(" " + word)) + 1.0 for word in coded]
    weights = [(i + 1) ** -alpha for i in range(len(coded))]
    scale = budget / sum(w * s for w, s in zip(weights, sizes))
    counts = [max(1, int(weight * scale)) for weight in weights]
    for i in (2, 1, 0):  # the first three differ from one another and from the others
        counts[i] = max(counts[i], counts[i + 1] + 1)
    body = [word for word, count in zip(coded, counts) for _ in range(count)]
    body += ["..."] * (len(body) // 4)
    rng.shuffle(body)
    out.add(fixed(*(" " + word for word in body)))
    out.add([QUESTION] + fixed("\n", ASK_CODED, "?") + [LEAD] + fixed(CODED_ARE, ":"))
    return out.add(listed([" " + word] for word in coded[:3])).parts


# ---- questions on made-up facts -------------------------------------------------------------------------------------

def name(rng):
    return words.made_up_word(rng).capitalize()


def person(rng):
    return name(rng) if rng.random() < 0.6 else name(rng) + " " + name(rng)


def fact_answer(rng, kind, people, towns):
    if kind == "town":
        return [" " + rng.choice(towns)]
    if kind == "thing":
        return [" " + noun(rng)]
    if kind == "colour":
        return [" " + rng.choice(COLOURS)]
    if kind == "number":
        return [" ", *digits(rng, 2, 3)]
    if kind == "year":
        return [" ", *str(rng.randint(1500, 1999))]
    return word_chunks(" " + rng.choice(people))


COLOURS = "red blue green yellow black white brown grey orange purple pink golden silver".split()


def word_chunks(text):
    """A name's words, each with the space before it."""
    out, run = [], ""
    for char in text:
        if char == " " and run:
            out.append(run)
            run = ""
        run += char
    return out + [run]


FORMS = ("documents", "passages", "text", "story", "plain")


def facts(rng, encoder, room, share, questions=None):
    """Questions on people and towns in prose, in the forms of RULER's and LongBench's questions and in plain words.
    Some ask for a fact of a friend, whom another sentence names."""
    form = rng.choice(FORMS)
    out = Filled(encoder)
    numbered = form in ("documents", "passages")
    if room > 300 or rng.random() < 0.3:
        if numbered:
            out.add(fixed(ON_GIVEN[form], ".", ONLY_ANSWER, ".", "\n", "\n", GIVEN_ARE[form], ".", "\n"))
            if form == "documents":
                out.add(fixed("\n"))
        elif form == "text":
            out.add(fixed(READ_BRIEFLY, ".", "\n", "\n"))
        elif form == "story":
            out.add(fixed(A_STORY, ".", "\n", "\n", STORY, " "))
    limit = share * room
    towns = distinct(name, rng.randint(4, 12), rng)
    people = distinct(person, max(2, min(60, int(limit / 40))), rng)
    known = {}
    density = rng.uniform(0.1, 1.0)
    i = 0
    while out.size < limit - 12 and i < len(people):
        who = people[i]
        if numbered:
            out.add(fixed(*(["\n", "\n"] if i and form == "documents" else ["\n"] if i else []),
                          DOCUMENT if form == "documents" else PASSAGE, " ", *str(i + 1), ":", "\n"))
        known[who] = {}
        for number, kind in enumerate(rng.sample(list(FACTS), rng.randint(1, 4))):
            if out.size > limit:
                break
            answer = fact_answer(rng, FACTS[kind][1], [p for p in people if p != who], towns)
            known[who][kind] = answer
            called = who if number == 0 or rng.random() < 0.7 else who.split()[0]
            out.add(fixed(*word_chunks((" " if out.parts and out.parts[-1][0] != "\n" else "") + called),
                          FACTS[kind][0], *answer, "."))
            while rng.random() > density and out.size < limit:
                out.add(sentence(rng))
        i += 1
        if not numbered and rng.random() < 0.3:
            out.add(fixed("\n"))
    out.add(fixed("\n"))
    pairs = [(who, kind) for who in known for kind in known[who]]
    if not pairs:
        return out.parts
    asked = 0
    while out.size < room and asked != questions:
        who, kind = rng.choice(pairs)
        named = word_chunks(" " + who)
        answer = known[who][kind]
        friend = "".join(known[who].get("friend", [])).strip()
        if friend in known and known[friend] and rng.random() < 0.3:
            kind = rng.choice(list(known[friend]))
            named, answer = [THE_FRIEND, *named], known[friend][kind]
        before, _, after = rng.choice(FACTS[kind][2]).partition("{}")
        question = fixed(before, *named, *([after[:-1], "?"] if len(after) > 1 else [after]))
        if numbered:
            lead = (fixed(ON_GIVEN[form], ".", ONLY_ANSWER, ".", "\n", "\n") if asked == 0 else fixed())
            tail = fixed("\n", "Answer", ":") if form == "passages" else fixed(" Answer", ":")
        elif form == "text":
            lead = fixed(NOW_ANSWER, ".", "\n", "\n") if asked == 0 else fixed()
            tail = fixed("\n", "Answer", ":")
        elif form == "story":
            lead = fixed(ON_STORY, ".", "\n", "\n") if asked == 0 else fixed()
            tail = fixed("\n", "\n", "Answer", ":")
        else:
            lead, tail = fixed(), fixed("\n", "Answer", ":")
        ask = fixed("Question", ":", " ") if form != "plain" else fixed()
        # After "Question: " the first word stands with its space.
        if ask:
            ask, question = ask[:2], fixed(" " + question[0][0]) + question[1:]
        out.add([QUESTION] + fixed("\n") + lead + ask + question + [LEAD] + tail
                + [(chunk, True) for chunk in answer] + ENDED)
        asked += 1
    return out.parts


# ---- LongBench's paragraphs -----------------------------------------------------------------------------------------

def prose(rng, count):
    """Sentences of a paragraph."""
    return [sentence(rng) for _ in range(count)]


def retrieval(rng, encoder, room, share, questions=None):
    """Passage retrieval: of which paragraph is the abstract, which tells some of its sentences in another order."""
    paragraphs = []
    size = 20
    while size < share * room - 20 or len(paragraphs) < 2:
        paragraphs.append(prose(rng, rng.randint(2, 6)))
        size += 5 + sum(map(encoder.size, paragraphs[-1]))
        if len(paragraphs) >= 60:
            break
    out = Filled(encoder)
    out.add(fixed(WHICH_PARAGRAPH[0], " ", *str(len(paragraphs)), WHICH_PARAGRAPH[1], ".", "\n", "\n"))
    for i, paragraph in enumerate(paragraphs):
        out.add(fixed(PARAGRAPH, " ", *str(i + 1), ":"))
        for text in paragraph:
            out.add(text)
        out.add(fixed("\n", "\n") if i + 1 < len(paragraphs) else fixed())
    asked = 0
    while out.size < room and asked != questions:
        which = rng.randrange(len(paragraphs))
        told = rng.sample(paragraphs[which], min(len(paragraphs[which]), rng.randint(1, 3)))
        abstract = [pair for text in told for pair in text]
        abstract = [(abstract[0][0].removeprefix(" "), False), *abstract[1:]]
        question = [QUESTION] + fixed("\n", "\n") + (fixed(AN_ABSTRACT, ".", "\n", "\n") + abstract + fixed(
            "\n", "\n", ENTER_PARAGRAPH, " \"", PARAGRAPH, " ", "1", "\",", " \"", PARAGRAPH, " ", "2", "\",", " etc",
            ".", "\n", "\n") if rng.random() < 0.5 or questions else abstract + fixed("\n"))
        out.add(question + [LEAD] + fixed(ANSWER_IS, ":", " ")
                + [(chunk, True) for chunk in (PARAGRAPH, " ", *str(which + 1))] + ENDED)
        asked += 1
    return out.parts


def unique(rng, encoder, room, share, questions=None):
    """Passage counting: how many paragraphs are there without the repeated ones."""
    out = Filled(encoder)
    out.add(fixed(COUNT_UNIQUE, "?", "\n", "\n"))
    different, size, order = [], 20, []
    most = rng.randint(1, 20)
    while size < share * room - 50:
        if different and (len(different) >= most or rng.random() < 0.4):
            paragraph = rng.choice(different)
        else:
            paragraph = prose(rng, rng.randint(1, 4))
            different.append(paragraph)
        order.append(paragraph)
        size += 6 + sum(map(encoder.size, paragraph))
        if len(order) >= 3 * most:
            break
    if not order:
        order = different = [prose(rng, 1)]
    for i, paragraph in enumerate(order):
        out.add(fixed(PARAGRAPH, " ", *str(i + 1), ":"))
        for text in paragraph:
            out.add(text)
        out.add(fixed("\n", "\n"))
    return out.add([QUESTION] + fixed(ENTER_COUNT, " ", "1", ",", " ", "2", ",", " ", "3", ",", " and", " so", " on",
                                      ".", "\n", "\n") + [LEAD] + fixed(FINAL_ANSWER, ":", " ")
                   + learned(str(len(different))) + ENDED).parts


# ---- the replay pass ---------------------------------------------------------------------------------------------

def replay(rng, encoder, room, share, questions=None):
    """A text of another task, then parts of it again after the words with which a cache is read a second time: the
    beginning, or what follows some tokens that are given."""
    source = rng.choice((finding.TASKS["lines"], finding.TASKS["needles"], finding.TASKS["records"], facts, variables))
    longest = 256
    text_room = room - min(longest, room // 3) - 24 if questions else int(room * rng.uniform(0.4, 0.7))
    text = source(rng, encoder, text_room, 0.97, 1)
    text = text[:text.index(QUESTION)] if QUESTION in text else text
    text = [(chunk, False) for chunk, _ in text]
    sizes = [len(encoder.ids(chunk)) for chunk, _ in text]
    chat = rng.random() < 0.6
    out = Filled(encoder)
    out.add((fixed(USER) if chat else fixed()) + text)
    asked = 0
    while out.size < room - 30 and asked != questions:
        start = rng.randrange(len(text)) if rng.random() < 0.8 else 0
        end, size = start, 0
        while end < len(text) and size < min(longest, room - 24 - out.size):
            size += sizes[end]
            end += 1
        lead = start
        while lead > 0 and sum(sizes[lead:start]) < 8:
            lead -= 1
        if chat:
            if asked:
                out.add(fixed(USER))
            prompt = fixed("\n", "\n", *([REPEAT_PART] if start else [REPEAT_ALL, "."]))
            switch = fixed(ASSISTANT)
            out.add(prompt + (text[lead:start] + switch if rng.random() < 0.5 else switch + text[lead:start]))
        else:
            out.add(fixed("\n") + text[lead:start])
        out.add([(chunk, True) for chunk, _ in text[start:end]])
        if chat:
            out.add([(END, end == len(text))])
        asked += 1
    return out.parts


TASKS = {"multivalue": multivalue, "multiquery": multiquery, "variables": variables, "common": common,
         "frequent": frequent, "facts": facts, "retrieval": retrieval, "unique": unique,
         "replay": replay}